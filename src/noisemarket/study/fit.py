"""Fitting the loss surface to measured points, and saying how good the fit is.

The game uses one thing of a surface, its quality: test accuracy over noise and non-IID degree. So
the surface is fitted to the measured accuracy first,

    accuracy = A - B h,   h = exp(-g2 d) / (g3 + exp(-g4 sigma)),

and then the measured loss to the same shape, ``loss = g1 h + g5``. That gives all seven constants:
zeta_1 = B / g1 and zeta_2 = A + zeta_1 g5. The paper goes the other way, loss first and accuracy
by regression on the loss, which serves the game worse wherever loss keeps growing after accuracy
has hit the floor. The degree ``d`` is ``beta``, as the paper has
it, or how even an owner's labels are (``LossSurface.labels``), whichever fits better. Under mixed
contracts ``sigma`` is the effective noise, and ``spread`` says what few owners cost.

For given g2, g3, g4 and spread the rest is linear, so only these are searched for, within bounds
and from many starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.game.surface import SURFACES, LossSurface
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of, tuned
from noisemarket.scenario.surface_file import fingerprint, surface_text
from noisemarket.study.calibrate import Point

PRINTED = SURFACES["printed"]
FEWEST_SIGMAS = 4
POOR = 2.0
"""Points of accuracy, root mean square, beyond which the form is called a poor fit."""

_LOW = np.array([0.0, math.log(1e-6), math.log(0.05), math.log(1e-5), math.log(1e-5)])
"""Of g2 and the logarithms of g3, g4 and both spreads."""
_HIGH = np.array([10.0, math.log(20.0), math.log(100.0), math.log(10.0), math.log(10.0)])
_FIRST_SPREAD = math.log(0.02)
_QUALITY = ("rms_accuracy", "worst_accuracy", "rms_loss")
_ROUNDING = 1e-9  # a slope that lifts a line by less, of its height, counts as 0
_STARTS = ((0.005, 0.1, 1.0), (1e-3, 3e-2, 0.5), (3.0, 9.0, 25.0))


@dataclass(frozen=True)
class Fit:
    """A surface, and how far it is from what was measured.

    ``rms_accuracy`` and ``worst_accuracy`` are in points of accuracy; ``rms_loss`` is None where no
    loss was finite.
    """

    surface: LossSurface
    rms_accuracy: float
    worst_accuracy: float
    rms_loss: float | None
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Data:
    sigma: FloatArray
    beta: FloatArray
    accuracy: FloatArray
    loss: FloatArray  # NaN where it was not finite
    share: FloatArray
    labels: int = 0

    @property
    def at(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What quality and loss are functions of."""
        return self.sigma, self.beta, self.share

    @property
    def mixed(self) -> bool:
        """Whether some mean rested on fewer owners than others."""
        return bool((self.share < 0.999).any())

    @property
    def betas(self) -> int:
        """How many there are: one says nothing about beta."""
        return len(np.unique(self.beta))

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which of g2, g3, g4 and both spreads the points say something about."""
        several = self.betas > 1
        uneven = self.mixed and bool(self.labels) and several
        return np.array([several, True, True, self.mixed, uneven])


class _Best:
    """The best that one form can do: its shape, whether loss follows, and its residuals."""

    def __init__(self, data: _Data) -> None:
        self.data, self.theta = data, _search(data, data.accuracy, -1.0)
        self.surface, self.follows = _surface(data, self.theta)
        self.residuals = data.accuracy - self.surface.quality(*data.at)


def fit_surface(points: Sequence[Point], labels: int = 0) -> Fit:
    """The surface that comes closest to the measured accuracy.

    Given how many ``labels`` the data has, and more than two betas, beta may count by how even an
    owner's labels are.
    """
    best = _Best(_data(points))
    remarks = []
    if labels and best.data.betas > 2:  # two betas fit either way
        plain, even = best, _Best(replace(best.data, labels=labels))
        if rms(even.residuals) < rms(plain.residuals):
            best = even
            remarks.append(
                "Beta counts by the chance that two records of an owner have different labels; "
                "with the paper's exp(-gamma_2 beta) the fit is "
                f"{rms(plain.residuals):.2f} points off."
            )
    off_loss = best.data.loss - best.surface.loss(*best.data.at)
    known = off_loss[np.isfinite(off_loss)]
    return Fit(
        surface=best.surface,
        rms_accuracy=rms(best.residuals),
        worst_accuracy=float(np.abs(best.residuals).max()),
        rms_loss=rms(known) if known.size else None,
        remarks=(*remarks, *_remarks(best)),
    )


def rms(values: FloatArray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def _data(points: Sequence[Point]) -> _Data:
    sigmas = {point.sigma for point in points}
    if len(sigmas) < FEWEST_SIGMAS:
        remedy = f"a fit takes at least {FEWEST_SIGMAS} different values of sigma: measure more."
        raise BadInput("points", f"{len(sigmas)} values of sigma", remedy)
    return _Data(
        sigma=np.array([point.effective_noise for point in points]),
        beta=np.array([point.beta for point in points]),
        accuracy=np.array([point.accuracy for point in points]),
        loss=np.array([np.nan if p.loss is None else p.loss for p in points], dtype=float),
        share=np.array([point.share for point in points]),
    )


def _form(
    theta: FloatArray, scale: tuple[float, float], zeta: tuple[float, float], labels: int = 0
) -> LossSurface:
    """The surface of a shape, that is of g2 and the logarithms of g3, g4 and both spreads, with
    g1 and g5 as its scale."""
    g3, g4, first, second = np.exp(theta[1:]).tolist()
    gamma = (scale[0], float(theta[0]), g3, g4, scale[1])
    return LossSurface(gamma, zeta, labels, (first, second))


def _shape(theta: FloatArray, data: _Data) -> FloatArray:
    return _form(theta, (1.0, 0.0), (1.0, 0.0), data.labels).loss(*data.at)


def _line(x: FloatArray, y: FloatArray, sign: float) -> tuple[float, float]:
    """Offset and slope of the best line whose slope has that sign, or is 0."""
    middle = x - x.mean()
    power = float(middle @ middle)
    slope = float(middle @ y) / power if power > 0.0 else 0.0
    rises = slope * sign * math.sqrt(power / len(x))
    if rises <= _ROUNDING * float(np.abs(y).max()):
        slope = 0.0
    return float(y.mean() - slope * x.mean()), slope


def _search(data: _Data, y: FloatArray, sign: float) -> FloatArray:
    """The shape whose best line to ``y`` is closest; from many starts."""
    free = data.free

    def full(part: FloatArray) -> FloatArray:
        whole = np.array([0.0, 0.0, 0.0, -math.inf, -math.inf])
        whole[free] = part
        return whole

    def residuals(part: FloatArray) -> FloatArray:
        shape = _shape(full(part), data)
        offset, slope = _line(shape, y, sign)
        return np.asarray(y - offset - slope * shape)

    g2s = (0.0,) if data.betas == 1 else _STARTS[0]
    spreads = [[_FIRST_SPREAD]] * 2
    corners = product(g2s, np.log(_STARTS[1]), np.log(_STARTS[2]), *spreads)
    found = [
        least_squares(
            residuals, np.array(corner)[free], bounds=(_LOW[free], _HIGH[free]), x_scale="jac"
        )
        for corner in corners
    ]
    best = min(found, key=lambda one: float(one.cost))
    return full(np.asarray(best.x, dtype=float))


def _surface(data: _Data, theta: FloatArray) -> tuple[LossSurface, bool]:
    """The surface of a shape, and whether the measured loss rises with it.

    Where it does not, nothing ties the surface's loss to a scale: it is counted in points of
    accuracy then (zeta_1 = 1), which is all the same to the game.
    """
    shape = _shape(theta, data)
    a, minus_b = _line(shape, data.accuracy, -1.0)
    known = np.isfinite(data.loss)
    g5, g1 = _line(shape[known], data.loss[known], 1.0) if known.sum() > 1 else (0.0, 0.0)
    if g1 <= 0.0:
        return _form(theta, (-minus_b, 0.0), (1.0, a), data.labels), False
    zeta = -minus_b / g1, a - minus_b / g1 * g5
    return _form(theta, (g1, g5), zeta, data.labels), True


def _remarks(found: _Best) -> list[str]:
    """What a reader of the fit must know."""
    data, surface, residuals, remarks = found.data, found.surface, found.residuals, []
    if data.betas == 1:
        remarks.append(
            f"Only beta {data.beta[0]:g} was measured: gamma_2 is set to 0, and quality does not "
            "depend on beta."
        )
    off = rms(residuals)
    if off > POOR:
        at = int(np.abs(residuals).argmax())
        remarks.append(
            f"The form fits poorly: {off:.1f} points of accuracy root mean square, "
            f"{residuals[at]:+.1f} at sigma {data.sigma[at]:g}, beta {data.beta[at]:g}."
        )
    if surface.zeta[0] * surface.gamma[0] <= 0.0:
        remarks.append("Accuracy did not fall with noise: the fitted quality is constant.")
    elif not found.follows:
        remarks.append(
            "The measured loss does not rise where accuracy falls: the surface counts its loss in "
            "points of accuracy."
        )
    edges = [np.isclose(found.theta, edge, atol=1e-3) for edge in (_LOW, _HIGH)]
    names = np.array(["gamma_2", "gamma_3", "gamma_4", "spread_1", "spread_2"])
    at_edge = names[(edges[0] | edges[1]) & data.free]
    return remarks + [
        f"{name} is at the edge of its range: do not read it alone." for name in at_edge
    ]


# The result of a calibration, and its file


class Calibration:
    """What has been measured of ``wanted`` points, and what can be fitted to it.

    ``labels`` is how many the data has. ``curve`` is accuracy over sigma at ``curve_beta``, the
    measured beta closest to 1 (means over the seeds), and ``rms_to_printed`` its distance to the
    paper's fitted curve, in points of accuracy.
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
        betas = {point.beta for point in points}
        self.curve_beta = min(betas, key=lambda b: (abs(math.log(b)), b), default=None)
        self.curve = [*self._curve()]
        off = np.array([one["accuracy"] - one["printed"] for one in self.curve])
        self.rms_to_printed = rms(off) if len(off) else None

    def _curve(self) -> Iterator[dict[str, Any]]:
        beta = self.curve_beta or 1.0
        own = [point for point in self.points if point.beta == beta and point.sellers == 1.0]
        for sigma in sorted({point.sigma for point in own}):
            yield {
                "sigma": sigma,
                "accuracy": float(np.mean([p.accuracy for p in own if p.sigma == sigma])),
                "fitted": self.fit and float(self.fit.surface.quality(sigma, beta)),
                "printed": float(PRINTED.quality(sigma, beta)),
            }

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
            "averaged": _averaged(scenario),
            **{name: getattr(surface, name, None) for name in constants},
            **{name: getattr(self.fit, name, None) for name in _QUALITY},
            "curve_beta": self.curve_beta,
            "curve": self.curve,
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
            "sigma",
            "sellers",
            "effective_noise",
            "share",
            "beta",
            "seed",
            "accuracy",
            "loss",
        )
        ordered = sorted(self.points, key=lambda p: (p.beta, -p.sellers, p.sigma, p.seed))
        more: dict[str, Any] = {
            "fit": {
                **dict(
                    zip(_QUALITY, _known([getattr(fit, name) for name in _QUALITY]), strict=True)
                ),
                "rms_to_printed": self.rms_to_printed,
                "curve_beta": self.curve_beta,
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
                if _averaged(scenario)
                else "last global model",
                "seconds": round(sum(point.seconds for point in self.points), 1),
                "training": settings["training"],
                "privacy": settings["privacy"],
            },
            "measured": {
                "columns": [name.replace("share", "effective_share") for name in columns],
                "points": [_known([getattr(p, name) for name in columns]) for p in ordered],
            },
        }
        return surface_text(fit.surface, more)


def _averaged(scenario: Scenario) -> bool:
    """Whether the measured model is the average of the global models."""
    training = scenario.training
    return float(tuned("averaging", training.averaging, training.model)) > 0.0


def _known(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
