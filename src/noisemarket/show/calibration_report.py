"""The report of a calibration: measured points, our fit and the paper's, with what they miss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table

from noisemarket.market.run_folder import RunFolder
from noisemarket.show.style import figure, label, save, table_of
from noisemarket.study.fit import PRINTED, Calibration

_COLOURS = ("#1f5fa8", "#c8641b", "#5b8f3a", "#8a5aa8", "#b03a5b", "#2a8f8f", "#7a6a2a")
_PAPER = "#222222"


def calibration_table(result: Calibration) -> Table:
    """The constants, and how good they are."""
    table = table_of(f"Loss surface {result.name}", "what", "measured")
    fit = result.fit
    if fit is not None:
        for name in ("gamma", "zeta", "spread"):
            values = getattr(fit.surface, name)
            for i, value in enumerate(values if any(values) else (), 1):
                table.add_row(f"{name}_{i}", f"{value:.5g}")
        table.add_row("accuracy, root mean square off", f"{fit.rms_accuracy:.2f}")
        table.add_row("accuracy, farthest off", f"{fit.worst_accuracy:.2f}")
    if result.rms_to_printed is not None:
        table.add_row("accuracy at beta 1, off the paper's fit", f"{result.rms_to_printed:.2f}")
    return table


def draw_calibration(folder: RunFolder, result: Calibration) -> list[Path]:
    """The surface with its residuals, if there is a fit, and the paper's curve at beta 1."""
    if not result.points:
        return []
    canvas, axes = figure(1, 1 if result.fit is None else 2, size=(5.4, 3.8))
    above, below = axes[0, 0], axes[-1, 0]
    fine = np.linspace(0.0, max(max(point.sigma for point in result.points), 1e-9), 121)
    fit, title = result.fit, "no fit"
    for i, beta in enumerate(sorted({point.beta for point in result.points})):
        colour, own = _COLOURS[i % len(_COLOURS)], [p for p in result.points if p.beta == beta]
        for mixed, mark, words in ((False, "o", "measured"), (True, "x", "mixed contracts")):
            some = [(p.effective_noise, p.accuracy) for p in own if (p.sellers < 1.0) == mixed]
            if some:
                above.plot(*zip(*some, strict=True), mark, color=colour, markersize=4,
                           label=f"{words}, beta {beta:g}")  # fmt: skip
        if fit is not None:
            fitted, named = fit.surface.quality(fine, beta), f"our fit, beta {beta:g}"
            above.plot(fine, fitted, color=colour, linewidth=1.4, label=named)
            noise, share = (np.array([(p.effective_noise, p.effective_share) for p in own])).T
            off = np.array([p.accuracy for p in own]) - fit.surface.quality(noise, beta, share)
            below.plot(noise, off, "o", color=colour, markersize=4.5)
            title = f"root mean square residual {fit.rms_accuracy:.2f} points of accuracy"
    paper = "paper's printed fit, beta 1"
    above.plot(fine, PRINTED.quality(fine, 1.0), "--", color=_PAPER, linewidth=1.2, label=paper)
    label(above, "Test accuracy", "effective noise", "test accuracy, %")
    if fit is not None:
        label(below, "Measured less fitted accuracy", "effective noise", "residual, %")
        below.axhline(0.0, color=_PAPER, linewidth=0.8)
    above.legend(frameon=False, fontsize=8)
    canvas.suptitle(f"{result.name}: {title}", fontsize=11)
    return save(canvas, folder.path / "figures", "surface")
