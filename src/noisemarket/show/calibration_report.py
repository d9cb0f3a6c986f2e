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
    """The constants with their standard errors, and how good they are."""
    title = f"Loss surface {result.name}"
    table = table_of(title, "what", "measured", "± (standard error)", "printed")
    fit = result.fit
    if fit is not None:
        for name, ours, errors, printed in (
            ("gamma", fit.surface.gamma, fit.gamma_errors, PRINTED.gamma),
            ("zeta", fit.surface.zeta, fit.zeta_errors, PRINTED.zeta),
        ):
            for i, (value, error, paper) in enumerate(zip(ours, errors, printed, strict=True), 1):
                shown = "-" if error is None else f"{error:.2g}"
                other = name == "gamma" and i == 2 and fit.surface.labels  # of another measure
                table.add_row(f"{name}_{i}", f"{value:.5g}", shown, "-" if other else f"{paper:g}")
        for i, error in enumerate(fit.spread_errors):
            table.add_row(f"spread_{i + 1}", f"{fit.surface.spread[i]:.3g}", f"{error:.2g}", "-")
        table.add_row("accuracy, root mean square off", f"{fit.rms_accuracy:.2f}", "", "")
        table.add_row("accuracy, farthest off", f"{fit.worst_accuracy:.2f}", "", "")
        if fit.rms_loss is not None:
            table.add_row("loss, root mean square off", f"{fit.rms_loss:.3g}", "", "")
    for one in result.curve:
        named = f"accuracy at sigma {one['sigma']:g}, beta {result.curve_beta:g}, %"
        table.add_row(named, f"{one['accuracy']:.1f}", "", f"{one['printed']:.1f}")
    if result.rms_to_printed is not None:
        table.add_row("the same, root mean square apart", f"{result.rms_to_printed:.2f}", "", "")
    return table


def draw_calibration(folder: RunFolder, result: Calibration) -> list[Path]:
    """The surface with its residuals, and the curve at beta 1 against the paper's."""
    if not result.points:
        return []
    figures = folder.path / "figures"
    return _draw_surface(figures, result) + _draw_curve(figures, result)


def _draw_surface(folder: Path, result: Calibration) -> list[Path]:
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
    return save(canvas, folder, "surface")


def _of(surface: LossSurface, name: str) -> Callable[..., Any]:
    return surface.quality if name == "accuracy" else surface.loss


def _curves(
    axis: Axes, name: str, own: Sequence[Point], beta: float, fine: FloatArray,
    result: Calibration, colour: str,
) -> None:  # fmt: skip
    """Measured points, our fit and, for accuracy, its standard error as a band."""
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
    if name == "accuracy" and fit.resampled:
        errors = fit.quality_errors(fine, np.full(len(fine), beta))
        axis.fill_between(fine, values - errors, values + errors, color=colour, alpha=0.15, lw=0)


def _residuals(
    axis: Axes, name: str, own: Sequence[Point], beta: float, result: Calibration, colour: str
) -> None:
    if result.fit is None:
        return
    fitted = _of(result.fit.surface, name)
    off = [getattr(one, name) - fitted(one.effective_noise, beta, one.share) for one in own]
    axis.plot([one.effective_noise for one in own], off, "o", color=colour, markersize=4.5)


def _draw_curve(folder: Path, result: Calibration) -> list[Path]:
    """Accuracy over noise at beta 1, measured and as the paper fitted it."""
    canvas, axes = figure(1, size=(5.6, 4.0))
    axis, beta = axes[0][0], result.curve_beta
    sigma = [one["sigma"] for one in result.curve]
    fine = np.linspace(0.0, max(*sigma, 1e-9), 121) if sigma else np.zeros(1)
    axis.plot(fine, PRINTED.quality(fine, beta or 1.0), "--", color=_PAPER,
              label="paper's printed fit")  # fmt: skip
    axis.plot(sigma, [one["printed"] for one in result.curve], "s", color=_PAPER, markersize=4)
    if result.fit is not None:
        fitted = result.fit.surface.quality(fine, beta or 1.0)
        axis.plot(fine, fitted, color=_COLOURS[0], linewidth=1.2, label="our fit")
    alone = [p for p in result.points if p.beta == beta and p.sellers == 1.0]
    spread = [[p.accuracy for p in alone if p.sigma == at] for at in sigma]
    middle = np.array([one["accuracy"] for one in result.curve])
    low, high = middle - list(map(min, spread)), list(map(max, spread)) - middle
    words = "measured" + (" (mean and range)" if max(map(len, spread)) > 1 else "")
    axis.errorbar(
        sigma, middle, yerr=[low, high], fmt="o", color=_COLOURS[0], markersize=5, capsize=2,
        label=words,
    )  # fmt: skip
    axis.legend(frameon=False, fontsize=9)
    apart = f"{result.rms_to_printed:.2f} points root mean square apart"
    label(axis, f"{result.name}, beta {beta:g}: {apart}", "sigma", "test accuracy, %")
    return save(canvas, folder, "accuracy")
