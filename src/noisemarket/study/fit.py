"""Fitting the loss surface to measured points, and saying how good the fit is.

The game uses one thing of a surface, its quality: test accuracy over noise and non-IID degree. So
the surface is fitted to the measured accuracy,

    accuracy = A - B h,   h = exp(-g2 d) / (g3 + exp(-g4 sigma)),

and its loss is counted in points of accuracy: g1 = B, g5 = 0, zeta_1 = 1 and zeta_2 = A. The paper
fits the loss first, and accuracy by regression on the loss, which serves the game worse wherever
loss keeps growing after accuracy has hit the floor. The degree ``d`` is ``beta``, as the paper has
it, or how even an owner's labels are (``LossSurface.labels``), whichever fits better. Under mixed
contracts ``sigma`` is the effective noise, and ``spread`` says what few owners cost.

For given g2, g3, g4 and spread the rest is linear, so only these are searched for, within bounds
and from many starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from noisemarket.errors import BadInput
from noisemarket.game.levels import SURFACES, FloatArray, LossSurface
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of
from noisemarket.scenario.surface_file import fingerprint, surface_text
from noisemarket.study.calibrate import Point

PRINTED = SURFACES["printed"]
FEWEST_SIGMAS = 4
POOR = 2.0
"""Points of accuracy, root mean square, beyond which the form is called a poor fit."""

_NAMES = np.array(["gamma_2", "gamma_3", "gamma_4", "spread_1", "spread_2"])
_LOW = np.array([0.0, math.log(1e-6), math.log(0.05), math.log(1e-5), math.log(1e-5)])
"""Of g2 and the logarithms of g3, g4 and both spreads."""
_HIGH = np.array([10.0, math.log(20.0), math.log(100.0), math.log(10.0), math.log(10.0)])
_FIRST_SPREAD = math.log(0.02)
_QUALITY = ("rms_accuracy", "worst_accuracy")
_ROUNDING = 1e-9  # a slope that lifts a line by less, of its height, counts as 0
_STARTS = ((0.005, 0.1, 1.0), (1e-3, 3e-2, 0.5), (3.0, 9.0, 25.0))


@dataclass(frozen=True)
class Fit:
    """A surface, and how far it is from the measured accuracy, in points."""

    surface: LossSurface
    rms_accuracy: float
    worst_accuracy: float
    remarks: tuple[str, ...]


class _Form(NamedTuple):
    """The best that one form can do: its surface and residuals, and what is at its bounds."""

    surface: LossSurface
    residuals: FloatArray
    at_edge: list[str]


def fit_surface(points: Sequence[Point], labels: int = 0) -> Fit:
    """The surface that comes closest to the measured accuracy.

    Given how many ``labels`` the data has, and more than two betas, beta may count by how even an
    owner's labels are.
    """
    sigmas, betas = {point.sigma for point in points}, {point.beta for point in points}
    if len(sigmas) < FEWEST_SIGMAS:
        remedy = f"a fit takes at least {FEWEST_SIGMAS} different values of sigma: measure more."
        raise BadInput("points", f"{len(sigmas)} values of sigma", remedy)
    best, remarks = _best(points, 0), []
    if labels and len(betas) > 2:  # two betas fit either way
        plain, even = rms(best.residuals), _best(points, labels)
        if rms(even.residuals) < plain:
            best = even
            remarks.append(
                "Beta counts by the chance that two records of an owner have different labels; "
                f"with the paper's exp(-gamma_2 beta) the fit is {plain:.2f} points off."
            )
    if len(betas) == 1:
        remarks.append(
            f"Only beta {points[0].beta:g} was measured: gamma_2 is set to 0, and quality does not "
            "depend on beta."
        )
    off, at = rms(best.residuals), int(np.abs(best.residuals).argmax())
    if off > POOR:
        worst = points[at]
        remarks.append(
            f"The form fits poorly: {off:.1f} points of accuracy root mean square, "
            f"{best.residuals[at]:+.1f} at sigma {worst.effective_noise:g}, beta {worst.beta:g}."
        )
    if best.surface.gamma[0] <= 0.0:
        remarks.append("Accuracy did not fall with noise: the fitted quality is constant.")
    edges = (f"{name} is at the edge of its range: do not read it alone." for name in best.at_edge)
    worst_off = float(np.abs(best.residuals[at]))
    return Fit(best.surface, off, worst_off, (*remarks, *edges))


def rms(values: FloatArray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def _best(points: Sequence[Point], labels: int) -> _Form:
    """The surface of one form that is closest to the points; searched for from many starts."""
    noise, beta, share, accuracy = np.array(
        [(one.effective_noise, one.beta, one.effective_share, one.accuracy) for one in points]
    ).T
    several, mixed = len(np.unique(beta)) > 1, bool((share < 0.999).any())
    # Which of g2, g3, g4 and both spreads the points say something about.
    free = np.array([several, True, True, mixed, mixed and bool(labels) and several])

    def surface(part: FloatArray, a: float, b: float) -> LossSurface:
        theta = np.array([0.0, 0.0, 0.0, -math.inf, -math.inf])
        theta[free] = part
        g3, g4, first, second = np.exp(theta[1:]).tolist()
        return LossSurface((b, float(theta[0]), g3, g4, 0.0), (1.0, a), labels, (first, second))

    def line(part: FloatArray) -> tuple[float, float, FloatArray]:
        """A and B of the best line that falls, or is level; and what it leaves."""
        shape = surface(part, 0.0, 1.0).loss(noise, beta, share)
        middle = shape - shape.mean()
        power = float(middle @ middle)
        slope = float(middle @ accuracy) / power if power > 0.0 else 0.0
        if -slope * math.sqrt(power / len(shape)) <= _ROUNDING * float(np.abs(accuracy).max()):
            slope = 0.0
        offset = float(accuracy.mean() - slope * shape.mean())
        return offset, -slope, np.asarray(accuracy - offset - slope * shape)

    def left(part: FloatArray) -> FloatArray:
        return line(part)[2]

    g2s = _STARTS[0] if several else (0.0,)
    spreads = [[_FIRST_SPREAD]] * 2
    corners = product(g2s, np.log(_STARTS[1]), np.log(_STARTS[2]), *spreads)
    bounds = _LOW[free], _HIGH[free]
    found = [
        least_squares(left, np.array(one)[free], bounds=bounds, x_scale="jac") for one in corners
    ]
    best = np.asarray(min(found, key=lambda one: float(one.cost)).x, dtype=float)
    a, b, _ = line(best)
    made = surface(best, a, b)
    edge = np.isclose(best, bounds[0], atol=1e-3) | np.isclose(best, bounds[1], atol=1e-3)
    residuals = accuracy - made.quality(noise, beta, share)
    return _Form(made, residuals, _NAMES[free][edge].tolist())


# The result of a calibration, and its file


class Calibration:
    """What has been measured of ``wanted`` points, and what can be fitted to it.

    ``labels`` is how many the data has. ``rms_to_printed`` is how far accuracy at beta 1, all
    owners with the same noise, is from the paper's fitted curve, in points.
    """

    def __init__(
        self, name: str, command: str, wanted: int, points: Sequence[Point], labels: int
    ) -> None:
        self.name, self.command, self.wanted, self.points = name, command, wanted, [*points]
        self.missing, self.fit = wanted - len(points), None
        try:
            self.fit = fit_surface(points, labels)
            self.remarks = [*self.fit.remarks]
        except BadInput as problem:
            self.remarks = [f"No fit: {problem.remedy}"]
        if self.missing:
            self.remarks.append(f"{self.missing} of {wanted} points have not been measured yet.")
        own = [one for one in points if one.beta == one.sellers == 1.0]
        off = [one.accuracy - float(PRINTED.quality(one.sigma, 1.0)) for one in own]
        self.rms_to_printed = rms(np.array(off)) if off else None

    def summary(self, scenario: Scenario) -> dict[str, Any]:
        """As plain values for JSON."""
        surface = self.fit and self.fit.surface
        constants = ("gamma", "zeta", "labels", "spread")
        return {
            "name": self.name,
            "complete": not self.missing,
            "points": len(self.points),
            "points_wanted": self.wanted,
            "protection": protection_of(scenario).name,
            "owners": scenario.population.owners,
            "rounds": scenario.training.rounds,
            "averaged": scenario.training.server == "auto",
            **{name: getattr(surface, name, None) for name in constants},
            **{name: getattr(self.fit, name, None) for name in _QUALITY},
            "rms_to_printed": self.rms_to_printed,
            "seconds": sum(point.seconds for point in self.points),
            "remarks": self.remarks,
        }

    def surface_file(self, scenario: Scenario, data: str) -> str | None:
        """The text of the surface file, with all it takes to judge and to repeat it.

        ``data`` is the SHA-256 of the data.
        """
        from noisemarket import __version__

        fit = self.fit
        if fit is None:
            return None
        settings = scenario.model_dump(mode="json")
        source = settings["training"].pop("data")
        columns = (
            *("sigma", "sellers", "effective_noise", "effective_share", "beta", "seed"),
            "accuracy",
        )
        ordered = sorted(self.points, key=lambda p: (p.beta, -p.sellers, p.sigma, p.seed))
        more: dict[str, Any] = {
            "fit": {
                **{name: getattr(fit, name) for name in _QUALITY},
                **({} if self.rms_to_printed is None else {"rms_to_printed": self.rms_to_printed}),
                "remarks": self.remarks,
            },
            "provenance": {
                "name": self.name,
                "command": self.command,
                "noisemarket": __version__,
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "data": Path(source).name if source else "MNIST",
                "job": fingerprint(scenario, data),
                "betas": sorted({point.beta for point in self.points}),
                "noise": "simulated: one party held all the data",
                "owners": scenario.population.owners,
                "model": "average of the global models"
                if scenario.training.server == "auto"
                else "last global model",
                "seconds": round(sum(point.seconds for point in self.points), 1),
                "training": settings["training"],
                "privacy": settings["privacy"],
            },
            "measured": {
                "columns": columns,
                "points": [[getattr(p, name) for name in columns] for p in ordered],
            },
        }
        return surface_text(fit.surface, more)
