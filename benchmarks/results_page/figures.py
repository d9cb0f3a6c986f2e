"""The figures of the page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from noisemarket.game.surface import surface
from noisemarket.report.campaign_figures import draw_costs, draw_frontier, draw_growth
from noisemarket.report.style import figure, label
from results_page.accuracy import BETAS, SURFACES, accuracy_of, points_of
from results_page.common import ROOT, stored
from results_page.frontier_parts import rows_of
from results_page.study_parts import decision_times

IMAGES = ROOT / "docs" / "images"
COLOURS = {0.1: "#D55E00", 1.0: "#0072B2", 10.0: "#009E73"}


def draw() -> None:
    """Draw what there are results for."""
    draw_accuracy()
    for name, image in (
        ("campaign-no-floor", "frontier"),
        ("campaign-features", "results-frontier"),
    ):
        if (found := stored(name)) is not None:
            keep_png(partial(draw_frontier, rows=rows_of(found)), image)
    if found is not None:
        keep_png(partial(draw_costs, rows=rows_of(found)), "results-costs")
    times, _ = decision_times()
    if times:
        keep_png(partial(draw_growth, times=times), "results-scale")


def keep_png(drawn: Callable[[Path], list[Path]], name: str) -> None:
    """Keep the PNG of a figure under this name."""
    with TemporaryDirectory() as folder:
        for path in drawn(Path(folder)):
            if path.suffix == ".png":
                (IMAGES / f"{name}.png").write_bytes(path.read_bytes())


def draw_accuracy() -> None:
    """Accuracy over sigma: a panel for each model and protection, the paper's curve in each."""
    canvas, axes = figure(3, size=(4.2, 3.9))
    fine, printed = np.linspace(0.0, 0.6, 61), surface("printed")
    for axis, (name, words) in zip(axes[0], SURFACES.items(), strict=True):
        axis.plot(fine, printed.quality(fine, 1.0), color="#8a8a8a", linestyle="--", linewidth=1.2)
        at, side = (0.5, "right") if name == "features-mnist" else (0.4, "left")
        height = float(printed.quality(at, 1.0)) + (-2.0 if side == "right" else 1.5)
        axis.text(at, height, "the paper's curve", color="#6a6a6a", ha=side)
        ends = []
        for beta in BETAS:
            sigmas = sorted({one[0] for one in points_of(name) if one[1] == beta})
            if sigmas:
                middle = [float(np.mean(accuracy_of(name, sigma, beta))) for sigma in sigmas]
                axis.plot(sigmas, middle, marker="o", markersize=4, color=COLOURS[beta])
                ends.append((middle[-1], beta))
        heights = [one for one, _ in sorted(ends)]
        for at in range(1, len(heights)):
            heights[at] = max(heights[at], heights[at - 1] + 2.6)
        for height, (_, beta) in zip(heights, sorted(ends), strict=True):
            axis.text(0.615, height, f"beta {beta:g}", color=COLOURS[beta], va="center")
        axis.set_xlim(0.0, 0.75)
        axis.set_xticks([0.0, 0.2, 0.4, 0.6])
        axis.set_ylim(50.0, 100.0)
        end = float(np.mean(accuracy_of(name, 0.6, 1.0)))
        words = words.replace("`", "")
        label(
            axis, f"{words}:\n{end:.0f} % at full noise", "sigma of all owners", "test accuracy, %"
        )
    canvas.savefig(IMAGES / "results-accuracy.png", dpi=150, metadata={"Software": "noisemarket"})
