"""Fitting the loss surface to measured points, and saying how sure and how good the fit is.

The game uses one thing of a surface, its quality: test accuracy over noise and non-IID degree. So
the surface is fitted to the measured accuracy first,

    accuracy = A - B h,   h = exp(-g2 d) / (g3 + exp(-g4 sigma)),

and then the measured loss to the same shape, ``loss = g1 h + g5``. That gives all seven constants:
zeta_1 = B / g1 and zeta_2 = A + zeta_1 g5. The paper goes the other way, loss first and accuracy
by regression on the loss; ``by_loss`` does that, for comparison. It serves the game worse wherever
loss keeps growing after accuracy has hit the floor. The degree ``d`` is ``beta``, as the paper has
it, or how even an owner's labels are (``LossSurface.labels``), whichever fits better. Under mixed
contracts ``sigma`` is the effective noise, and ``spread`` says what few owners cost.

For given g2, g3, g4 and spread the rest is linear, so only these are searched for, within bounds
and from many starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from noisemarket.calibration.points import Point
from noisemarket.errors import BadInput
from noisemarket.game.surface import LossSurface

FloatArray = NDArray[np.float64]

FEWEST_SIGMAS = 4
RESAMPLES = 200
POOR = 2.0
"""Points of accuracy, root mean square, beyond which the form is called a poor fit."""

_LOW = np.array([0.0, math.log(1e-6), math.log(0.05), math.log(1e-5), math.log(1e-5)])
"""Of g2 and the logarithms of g3, g4 and both spreads."""
_HIGH = np.array([10.0, math.log(20.0), math.log(100.0), math.log(10.0), math.log(10.0)])
_FIRST_SPREAD = math.log(0.02)
_GAMMAS = tuple(f"gamma_{number}" for number in range(1, 6))
_ROUNDING = 1e-9  # a slope that lifts a line by less, of its height, counts as 0
_STARTS = ((0.005, 0.1, 1.0), (1e-3, 3e-2, 0.5), (3.0, 9.0, 25.0))


@dataclass(frozen=True)
class Fit:
    """A surface, the standard errors of its constants, and how far it is from what was measured.

    ``rms_accuracy`` and ``worst_accuracy`` are in points of accuracy; ``rms_loss`` is None where no
    loss was finite, errors where there are no more points than constants.
    """

    surface: LossSurface
    gamma_errors: tuple[float | None, ...]
    zeta_errors: tuple[float | None, ...]
    spread_errors: tuple[float, ...]
    rms_accuracy: float
    worst_accuracy: float
    rms_loss: float | None
    remarks: tuple[str, ...]
    resampled: tuple[LossSurface, ...] = field(default=(), repr=False, compare=False)

    def quality_errors(self, sigma: FloatArray, beta: FloatArray) -> FloatArray:
        """Standard errors of the fitted quality; NaN where there are none."""
        if not self.resampled:
            return np.full(np.broadcast(sigma, beta).shape, np.nan)
        drawn = np.array([one.quality(sigma, beta) for one in self.resampled])
        return np.asarray(_half_width(drawn))


@dataclass(frozen=True)
class _Data:
    sigma: FloatArray
    beta: FloatArray
    accuracy: FloatArray
    loss: FloatArray  # NaN where it was not finite
    betas: int
    share: FloatArray
    labels: int = 0

    @property
    def mixed(self) -> bool:
        """Whether some mean rested on fewer owners than others."""
        return bool((self.share < 0.999).any())

    @property
    def one_beta(self) -> bool:
        """Whether the points say nothing about beta."""
        return self.betas == 1

    @property
    def constants(self) -> int:
        """How many constants shape the accuracy."""
        return 2 + int(self.free.sum())

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which of g2, g3, g4 and both spreads the points say something about."""
        uneven = self.mixed and bool(self.labels) and not self.one_beta
        return np.array([not self.one_beta, True, True, self.mixed, uneven])


@dataclass(frozen=True)
class _Found:
    """The best that one form can do: its shape, whether loss follows, and what it leaves."""

    data: _Data
    theta: FloatArray
    surface: LossSurface
    follows: bool
    residuals: FloatArray


def fit_surface(points: Sequence[Point], resamples: int = RESAMPLES, *, labels: int = 0) -> Fit:
    """The surface that comes closest to the measured accuracy, with its uncertainty.

    Given how many ``labels`` the data has, and more than two betas, beta may count by how even an
    owner's labels are. Standard errors are half the width of the middle 68 % over ``resamples``
    refits to the fit plus residuals drawn anew; so they count the scatter of training and the
    misfit of the form alike.
    """
    best = _best(_data(points))
    remarks = []
    if labels and best.data.betas > 2:  # two betas fit either way
        plain, even = best, _best(replace(best.data, labels=labels))
        if rms(even.residuals) < rms(plain.residuals):
            best = even
            remarks.append(
                "Beta counts by the chance that two records of an owner have different labels; "
                "with the paper's exp(-gamma_2 beta) the fit is "
                f"{rms(plain.residuals):.2f} points off."
            )
    data, theta, surface, residuals = best.data, best.theta, best.surface, best.residuals
    remarks += _remarks(best)
    resampled = _resampled(data, theta, surface, resamples)
    if resampled:
        gammas = _half_width(np.array([one.gamma for one in resampled]))
        zetas = _half_width(np.array([one.zeta for one in resampled]))
        spreads = _half_width(np.array([one.spread for one in resampled]))
        spread_errors = tuple(map(float, spreads)) if data.mixed else ()
        gamma_errors: tuple[float | None, ...] = tuple(map(float, gammas))
        zeta_errors: tuple[float | None, ...] = tuple(map(float, zetas))
    else:
        gamma_errors, zeta_errors, spread_errors = (None,) * 5, (None,) * 2, ()
        remarks.append("There are no more points than constants: no errors can be given.")
    if data.one_beta:
        gamma_errors = (gamma_errors[0], None, *gamma_errors[2:])
    remarks += _poor_constants(surface, gamma_errors, zeta_errors)
    return Fit(
        surface=surface,
        gamma_errors=gamma_errors,
        zeta_errors=zeta_errors,
        spread_errors=spread_errors,
        rms_accuracy=rms(residuals),
        worst_accuracy=float(np.abs(residuals).max()),
        rms_loss=_rms_loss(data, surface),
        remarks=tuple(remarks),
        resampled=resampled,
    )


def by_loss(points: Sequence[Point]) -> Fit | None:
    """The paper's way: gamma by the loss alone, zeta by regression of accuracy on measured loss.

    Without errors; None where losses are not all finite or accuracy does not fall with them.
    """
    data = _data(points)
    if not np.isfinite(data.loss).all():
        return None
    theta = _search(data, data.loss, 1.0)
    g5, g1 = _line(_shape(theta, data), data.loss, 1.0)
    zeta_2, minus_zeta_1 = _line(data.loss, data.accuracy, -1.0)
    if not g1 or not minus_zeta_1:
        return None
    g2, g3, g4, *spread = _constants(theta)
    zeta = (-minus_zeta_1, zeta_2)
    surface = LossSurface((g1, g2, g3, g4, g5), zeta, spread=(spread[0], spread[1]))
    residuals = data.accuracy - surface.quality(data.sigma, data.beta, data.share)
    nothing = (None,) * 5
    worst = float(np.abs(residuals).max())
    off = rms(residuals), worst, _rms_loss(data, surface)
    return Fit(surface, nothing, nothing[:2], (), *off, ())


def poorly_determined(value: float, error: float) -> bool:
    """Whether a constant says little by itself: its standard error is over half its size."""
    return error > abs(value) / 2.0


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
        betas=len({point.beta for point in points}),
        share=np.array([point.share for point in points]),
    )


def _constants(theta: FloatArray) -> list[float]:
    """g2, g3, g4 and both spreads."""
    return [float(theta[0]), *np.exp(theta[1:]).tolist()]


def _shape(theta: FloatArray, data: _Data) -> FloatArray:
    g2, g3, g4, *spread = _constants(theta)
    gamma = (1.0, g2, g3, g4, 0.0)
    form = LossSurface(gamma, (1.0, 0.0), data.labels, (spread[0], spread[1]))
    return form.loss(data.sigma, data.beta, data.share)


def _line(x: FloatArray, y: FloatArray, sign: float) -> tuple[float, float]:
    """Offset and slope of the best line whose slope has that sign, or is 0."""
    middle = x - x.mean()
    power = float(middle @ middle)
    slope = float(middle @ y) / power if power > 0.0 else 0.0
    rises = slope * sign * math.sqrt(power / len(x))
    if rises <= _ROUNDING * float(np.abs(y).max()):
        slope = 0.0
    return float(y.mean() - slope * x.mean()), slope


def _search(data: _Data, y: FloatArray, sign: float, start: FloatArray | None = None) -> FloatArray:
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

    if start is not None:
        starts = [start[free]]
    else:
        g2s = (0.0,) if data.one_beta else _STARTS[0]
        spreads = [[_FIRST_SPREAD]] * 2
        corners = product(g2s, np.log(_STARTS[1]), np.log(_STARTS[2]), *spreads)
        starts = [np.array(corner)[free] for corner in corners]
    found = [
        least_squares(residuals, one, bounds=(_LOW[free], _HIGH[free]), x_scale="jac")
        for one in starts
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
    g2, g3, g4, *two = _constants(theta)
    spread = (two[0], two[1])
    if g1 <= 0.0:
        return LossSurface((-minus_b, g2, g3, g4, 0.0), (1.0, a), data.labels, spread), False
    zeta = -minus_b / g1, a - minus_b / g1 * g5
    return LossSurface((g1, g2, g3, g4, g5), zeta, data.labels, spread), True


def _best(data: _Data) -> _Found:
    theta = _search(data, data.accuracy, -1.0)
    surface, follows = _surface(data, theta)
    residuals = data.accuracy - surface.quality(data.sigma, data.beta, data.share)
    return _Found(data, theta, surface, follows, residuals)


def _resampled(
    data: _Data, theta: FloatArray, surface: LossSurface, resamples: int
) -> tuple[LossSurface, ...]:
    points = len(data.accuracy)
    if points <= data.constants:
        return ()
    inflate = math.sqrt(points / (points - data.constants))  # a fit is closer than the truth
    at = data.sigma, data.beta, data.share
    accuracy, loss = surface.quality(*at), surface.loss(*at)
    off_accuracy = inflate * (data.accuracy - accuracy)
    off_loss = inflate * (data.loss - loss)
    rng = np.random.default_rng(20_000)
    out = []
    for _ in range(resamples):
        drawn = rng.integers(points, size=points)  # a point's two residuals stay together
        again = replace(data, accuracy=accuracy + off_accuracy[drawn], loss=loss + off_loss[drawn])
        out.append(_surface(again, _search(again, again.accuracy, -1.0, theta))[0])
    return tuple(out)


def _half_width(drawn: FloatArray) -> FloatArray:
    """Half the width of the middle 68 %: the standard error, but deaf to wild refits."""
    low, high = np.percentile(drawn, [15.865, 84.135], axis=0)
    return np.asarray((high - low) / 2.0)


def _rms_loss(data: _Data, surface: LossSurface) -> float | None:
    known = np.isfinite(data.loss)
    if not known.any():
        return None
    return rms((data.loss - surface.loss(data.sigma, data.beta, data.share))[known])


def _remarks(found: _Found) -> list[str]:
    """What a reader of the fit must know."""
    data, surface, residuals = found.data, found.surface, found.residuals
    remarks: list[str] = []
    if data.one_beta:
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
    theta = found.theta
    edges = np.isclose(theta, _LOW, atol=1e-3) | np.isclose(theta, _HIGH, atol=1e-3)
    names = (*_GAMMAS[1:4], "spread_1", "spread_2")
    for name, at_edge, free in zip(names, edges, data.free, strict=True):
        if at_edge and free:
            remarks.append(f"{name} is at the edge of its range: do not read it alone.")
    return remarks


def _poor_constants(
    surface: LossSurface, gamma_errors: Sequence[float | None], zeta_errors: Sequence[float | None]
) -> list[str]:
    """The constants that the points hardly determine, if there are any."""
    named = (*_GAMMAS, "zeta_1", "zeta_2")
    values, errors = (*surface.gamma, *surface.zeta), (*gamma_errors, *zeta_errors)
    poor = [
        f"{name} {value:.3g} ± {error:.2g}"
        for name, value, error in zip(named, values, errors, strict=True)
        if error is not None and poorly_determined(value, error)
    ]
    return [f"Poorly determined, do not read alone: {', '.join(poor)}."] if poor else []
