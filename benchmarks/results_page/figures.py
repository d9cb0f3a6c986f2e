"""The figures of the pages, each with a digest of the stored results that it was drawn from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from benchmarks.results_page import common
from benchmarks.results_page.accuracy import BETAS, SURFACES, accuracy_of, points_of
from benchmarks.results_page.campaigns import campaign
from benchmarks.results_page.common import ROOT
from benchmarks.results_page.dypp_figures import draw_adaptation, draw_sensitivity
from noisemarket.scenario.surface_file import find_surface
from noisemarket.show.comparison_report import (
    draw_frontier,
    knows,
    middle_budget,
    under_budget,
)
from noisemarket.show.style import figure, label, listed, name_of, save
from noisemarket.study.results import NO_TRADE, Row, half_width, means, paired_differences

IMAGES = ROOT / "docs" / "images"
COLOURS = {0.1: "#D55E00", 1.0: "#0072B2", 10.0: "#009E73"}
SOURCE = "Source"
"""What a PNG calls the digest of what it was drawn from."""

Drawn = Callable[[Path], list[Path]]

SOURCES: dict[str, Sequence[str]] = {
    "results-accuracy": tuple(SURFACES),
    "frontier": ("campaign",),
    "dypp-adaptation": ("adaptation",),
    "dypp-sensitivity": ("sensitivity",),
}
"""Figure to the stored results (or shipped surfaces) that it shows."""


def digest_of(name: str) -> str:
    """Of all that a figure is drawn from."""
    found = hashlib.sha256()
    for source in SOURCES[name]:
        stored = common.RESULTS / f"{source}.json"
        shipped = files("noisemarket.scenario") / "surfaces" / f"{source}.toml"
        found.update(source.encode())
        if stored.exists():
            found.update(stored.read_bytes())
        elif shipped.is_file():
            found.update(shipped.read_bytes())
    return found.hexdigest()


def drawings() -> dict[str, Drawn]:
    """Figure to what draws it, of those that there are results for."""
    out: dict[str, Drawn] = {"results-accuracy": draw_accuracy}
    if (found := campaign()) is not None:
        title = frontier_title(found.rows)
        out["frontier"] = partial(draw_frontier, rows=found.rows, title=title)
    for study, drawn in (("adaptation", draw_adaptation), ("sensitivity", draw_sensitivity)):
        if (document := common.stored(study)) is not None:
            out[f"dypp-{study}"] = partial(drawn, found=document)
    return out


def draw(images: Path = IMAGES) -> None:
    """Draw what there are results for; remove what there are none for any more."""
    made = drawings()
    for name in SOURCES:
        path = images / f"{name}.png"
        if name in made:
            keep_png(made[name], path, digest_of(name))
        else:
            path.unlink(missing_ok=True)


def keep_png(drawn: Drawn, path: Path, digest: str) -> None:
    """Keep the PNG of a figure, with the digest of what it was drawn from."""
    note = PngInfo()
    note.add_text("Software", "noisemarket")
    note.add_text(SOURCE, digest)
    with TemporaryDirectory() as folder:
        (png,) = (one for one in drawn(Path(folder)) if one.suffix == ".png")
        with Image.open(png) as image:
            image.save(path, pnginfo=note, optimize=True, dpi=image.info.get("dpi", (150, 150)))


def drawn_from(path: Path) -> str:
    """The digest of what a PNG was drawn from."""
    with Image.open(path) as image:
        return str(image.info.get(SOURCE, ""))


def draw_accuracy(folder: Path) -> list[Path]:
    """Accuracy over sigma: a panel for each model and protection, the paper's curve in each."""
    canvas, axes = figure(3, size=(4.2, 3.9))
    fine, printed = np.linspace(0.0, 0.6, 61), find_surface("printed")
    for axis, (name, words) in zip(axes[0], SURFACES.items(), strict=True):
        axis.plot(fine, printed.quality(fine, 1.0), color="#8a8a8a", linestyle="--", linewidth=1.2)
        at, side = (0.5, "right") if name == "features-mnist" else (0.4, "left")
        height = float(printed.quality(at, 1.0)) + (-2.0 if side == "right" else 1.5)
        axis.text(at, height, "the paper's curve", color="#6a6a6a", ha=side)
        ends, most = [], 0
        for beta, mark in zip(BETAS, "sov", strict=True):
            sigmas = sorted({one[0] for one in points_of(name) if one[1] == beta})
            if sigmas:
                some = [accuracy_of(name, sigma, beta) for sigma in sigmas]
                middle = [float(np.mean(one)) for one in some]
                widths = [half_width(one) for one in some]
                axis.errorbar(sigmas, middle, widths if any(widths) else None, marker=mark,
                              markersize=4, color=COLOURS[beta], capsize=2)  # fmt: skip
                ends.append((middle[-1], beta))
                most = max(most, *map(len, some))
        heights = [one for one, _ in sorted(ends)]
        for at in range(1, len(heights)):
            heights[at] = max(heights[at], heights[at - 1] + 2.6)
        for height, (_, beta) in zip(heights, sorted(ends), strict=True):
            axis.text(0.615, height, f"beta {beta:g}", color=COLOURS[beta], va="center")
        axis.set_xlim(0.0, 0.75)
        axis.set_xticks([0.0, 0.2, 0.4, 0.6])
        axis.set_ylim(50.0, 100.0)
        end = float(np.mean(accuracy_of(name, 0.6, 1.0)))
        seeds = "one seed" if most == 1 else f"{most} seeds, 95 % intervals"
        words = f"{words.replace('`', '')}:\n{end:.0f} % at full noise ({seeds})"
        label(axis, words, "sigma of all owners", "test accuracy, %")
    return save(canvas, folder, "accuracy")


def frontier_title(rows: Sequence[Row]) -> str:
    """The finding: who brings most for the middle budget without knowing anything private."""
    budget, found = middle_budget(rows), means(rows)
    base = next(one["accuracy"] for one in found if one["mechanism"] == NO_TRADE)
    gains = {
        one["mechanism"]: one["accuracy"] - base
        for one in found
        if one["budget"] == budget and one["mechanism"] != NO_TRADE
        and knows(one["mechanism"]).startswith("nothing")
    }  # fmt: skip
    if not gains:
        return "Accuracy over money paid"
    best = max(gains, key=lambda name: gains[name])
    first = (
        f"{under_budget(budget)}, {name_of(best)} gains most without private knowledge: "
        f"{gains[best]:+.1f} points"
    )
    tested = [one for one in paired_differences(rows)
              if one.budget == budget and one.p_corrected is not None]  # fmt: skip
    if not tested:
        return first
    behind = {one.first if one.second == best else one.second
              for one in tested if best in (one.first, one.second) and one.significant}  # fmt: skip
    near = [name_of(name) for name in gains if name != best and name not in behind]
    less = [f"{name_of(name)} {gains[name]:+.1f}"
            for name in sorted(gains, key=lambda name: -gains[name]) if name in behind]  # fmt: skip
    parts = [f"within chance of it: {listed(near)}"] if near else []
    parts += [f"less: {listed(less)}"] if less else []
    return f"{first};\n{'; '.join(parts)}" if parts else first
