"""The report of a calibration: measured points, our fit and the paper's, with what they miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from noisemarket.game.levels import FloatArray
from noisemarket.game.surface import LossSurface
from noisemarket.market.run_folder import RunFolder
from noisemarket.show.style import figure, label, save, table_of
from noisemarket.study.calibrate import Point
from noisemarket.study.fit import PRINTED, Calibration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#1f5fa8", "#c8641b", "#5b8f3a", "#8a5aa8", "#b03a5b", "#2a8f8f", "#7a6a2a")
_PAPER = "#222222"


def calibration_table(result: Calibration) -> Table:
    """The constants, and how good they are."""
    title = f"Loss surface {result.name}"
    table = table_of(title, "what", "measured", "printed")
    fit = result.fit
    if fit is not None:
        for name in ("gamma", "zeta"):
            both = zip(getattr(fit.surface, name), getattr(PRINTED, name), strict=True)
            for i, (value, paper) in enumerate(both, 1):
                other = name == "gamma" and i == 2 and fit.surface.labels  # of another measure
                table.add_row(f"{name}_{i}", f"{value:.5g}", "-" if other else f"{paper:g}")
        for i, value in enumerate(fit.surface.spread if any(fit.surface.spread) else (), 1):
            table.add_row(f"spread_{i}", f"{value:.3g}", "-")
        table.add_row("accuracy, root mean square off", f"{fit.rms_accuracy:.2f}", "")
        table.add_row("accuracy, farthest off", f"{fit.worst_accuracy:.2f}", "")
        if fit.rms_loss is not None:
            table.add_row("loss, root mean square off", f"{fit.rms_loss:.3g}", "")
    for one in result.curve:
        named = f"accuracy at sigma {one['sigma']:g}, beta {result.curve_beta:g}, %"
        table.add_row(named, f"{one['accuracy']:.1f}", f"{one['printed']:.1f}")
    if result.rms_to_printed is not None:
        table.add_row("the same, root mean square apart", f"{result.rms_to_printed:.2f}", "")
    return table


def draw_calibration(folder: RunFolder, result: Calibration) -> list[Path]:
    """The surface with its residuals, and the paper's curve at beta 1."""
    if not result.points:
        return []
    canvas, axes = figure(2, 2, size=(5.4, 3.8))
    betas = sorted({point.beta for point in result.points})
    fine = np.linspace(0.0, max(max(point.sigma for point in result.points), 1e-9), 121)
    for (above, below), name, unit in zip(axes.T, ("accuracy", "loss"), (", %", ""), strict=True):
        for i, beta in enumerate(betas):
            colour = _COLOURS[i % len(_COLOURS)]
            here = (point for point in result.points if point.beta == beta)
            own = [point for point in here if getattr(point, name) is not None]
            _curves(above, name, own, beta, fine, result, colour)
            _residuals(below, name, own, beta, result, colour)
        beta = result.curve_beta or 1.0
        paper = f"paper's printed fit, beta {beta:g}"
        printed = _of(PRINTED, name)(fine, beta)
        above.plot(fine, printed, "--", color=_PAPER, linewidth=1.2, label=paper)
        label(above, f"Test {name}", "effective noise", f"test {name}{unit}")
        label(below, f"Measured less fitted {name}", "effective noise", f"residual{unit}")
        below.axhline(0.0, color=_PAPER, linewidth=0.8)
    losses = [point.loss for point in result.points if point.loss is not None]
    if losses and min(losses) > 0 and max(losses) > 20 * min(losses):
        axes[0][1].set_yscale("log")
        axes[1][1].set_yscale("symlog", linthresh=1.0)
    axes[0][0].legend(frameon=False, fontsize=8)
    title, fit = "no fit", result.fit
    if fit is not None:
        off = "" if fit.rms_loss is None else f", loss {fit.rms_loss:.3g}"
        title = f"root mean square residual {fit.rms_accuracy:.2f} points of accuracy{off}"
    canvas.suptitle(f"{result.name}: {title}", fontsize=11)
    return save(canvas, folder.path / "figures", "surface")


def _of(surface: LossSurface, name: str) -> Callable[..., Any]:
    return surface.quality if name == "accuracy" else surface.loss


def _curves(
    axis: Axes, name: str, own: Sequence[Point], beta: float, fine: FloatArray,
    result: Calibration, colour: str,
) -> None:  # fmt: skip
    """Measured points and our fit."""
    for mixed, mark, words in ((False, "o", "measured"), (True, "x", "mixed contracts")):
        known = [
            (point.effective_noise, getattr(point, name))
            for point in own
            if (point.sellers < 1.0) == mixed
        ]
        if known:
            axis.plot(*zip(*known, strict=True), mark, color=colour, markersize=4,
                      label=f"{words}, beta {beta:g}")  # fmt: skip
    fit = result.fit
    if fit is None:
        return
    values = _of(fit.surface, name)(fine, beta)
    axis.plot(fine, values, color=colour, linewidth=1.4, label=f"our fit, beta {beta:g}")


def _residuals(
    axis: Axes, name: str, own: Sequence[Point], beta: float, result: Calibration, colour: str
) -> None:
    if result.fit is None:
        return
    fitted = _of(result.fit.surface, name)
    off = [getattr(one, name) - fitted(one.effective_noise, beta, one.share) for one in own]
    axis.plot([one.effective_noise for one in own], off, "o", color=colour, markersize=4.5)
