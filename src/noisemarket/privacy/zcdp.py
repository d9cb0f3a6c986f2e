"""Zero-concentrated differential privacy: what Gaussian noise costs, and what that means.

One release with L2-sensitivity ``s`` under noise N(0, sigma^2 I) costs ``rho = s^2 / (2 sigma^2)``;
costs add. ``gaussian_epsilon`` is exact for Gaussian releases; ``zcdp_epsilon`` (tight) and
``zcdp_epsilon_classic`` (textbook) are upper bounds for every rho-zCDP mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

from noisemarket.errors import BadInput

MOST = 10**12
"""Largest number of rounds, shards, steps, records or parameters."""
LARGEST_EPSILON = 1e300

_SQRT_2, _SQRT_PI = math.sqrt(2.0), math.sqrt(math.pi)


class Neighbours(StrEnum):
    """Which two data sets must look alike; it stands in every sensitivity, budget and statement."""

    REPLACE_ONE = "replace_one"
    """One unit is replaced by any other: a contribution of norm ``c`` can move by ``2 c``."""
    ZERO_OUT = "zero_out"
    """One unit's contribution is set to zero: it moves by ``c``. Half the sensitivity, rho / 4."""

    @property
    def reach(self) -> float:
        """How far a contribution clipped to norm 1 can move."""
        return 2.0 if self is Neighbours.REPLACE_ONE else 1.0

    @classmethod
    def named(cls, name: str) -> Neighbours:
        try:
            return cls(name)
        except ValueError:
            raise BadInput("neighbours", name, f"choose one of: {', '.join(cls)}.") from None


def sharded_sensitivity(
    clip: float, shards: int, neighbours: Neighbours, rounding: float = 0.0
) -> float:
    """Sensitivity of the mean of ``shards`` updates, each clipped to norm ``clip``.

    A record is in one shard, and however that shard was trained, its share of the mean has norm at
    most ``clip / shards``. ``rounding`` is what the noise grid may add (``rounding_reach``).
    """
    return neighbours.reach * clip / shards + rounding


def dp_sgd_sensitivity(
    clip: float,
    batch: int,
    steps: int,
    learning_rate: float,
    neighbours: Neighbours,
    rounding: float = 0.0,
) -> float:
    """Sensitivity of one pass of DP-SGD, to be set against the *total* noise sigma on the model.

    ``steps`` disjoint batches, gradients clipped one by one, noise sigma / sqrt(steps) a step. A
    record moves one step, by ``reach * learning_rate * clip / batch``; that step's noise is
    sqrt(steps) times smaller than sigma, so against sigma the move counts sqrt(steps) times.
    ``rounding`` is what the noise grid may add in a step (``rounding_reach``).
    """
    return (neighbours.reach * learning_rate * clip / batch + rounding) * math.sqrt(steps)


def gaussian_rho(sensitivity: float, sigma: float) -> float:
    """The zCDP cost of one Gaussian release, ``sensitivity^2 / (2 sigma^2)``.

    Infinite without noise, or without a bound on the sensitivity.

    Example:
        >>> gaussian_rho(sensitivity=1.0, sigma=2.0)
        0.125
    """
    _non_negative("sensitivity", sensitivity, infinity=True)
    _non_negative("sigma", sigma)
    if sensitivity == 0.0:
        return 0.0
    if sigma == 0.0 or math.isinf(sensitivity):
        return math.inf
    ratio = sensitivity / sigma
    return ratio * ratio / 2.0


def gaussian_epsilon(rho: float, delta: float) -> float:
    """The exact epsilon at ``delta`` of Gaussian releases of total cost ``rho``.

    With mu = sqrt(2 rho): delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    Example:
        >>> round(gaussian_epsilon(rho=0.125, delta=1e-5), 3)
        1.993
    """
    _non_negative("rho", rho, infinity=True)
    _probability("delta", delta)
    if rho == 0.0 or math.isinf(rho):
        return rho
    return _gaussian_epsilon(float(rho), float(delta))


@lru_cache(maxsize=4096)  # most owners of a market have the same few noises
def _gaussian_epsilon(rho: float, delta: float) -> float:
    mu, log_delta = _SQRT_2 * math.sqrt(rho), math.log(delta)
    if _log_delta(-mu / 2.0, mu) <= log_delta:
        return 0.0
    a = _solve_for_a(lambda a: _log_delta(a, mu) - log_delta, delta, lowest=-mu / 2.0)
    return max(mu * a + rho, 0.0)


def gaussian_rho_for_epsilon(epsilon: float, delta: float) -> float:
    """The total rho of Gaussian releases with this epsilon: inverse of ``gaussian_epsilon``."""
    if not 0.0 < epsilon <= LARGEST_EPSILON:
        raise BadInput("epsilon", epsilon, f"give a number above 0, up to {LARGEST_EPSILON:g}.")
    log_delta = math.log(_probability("delta", delta))

    def mu_at(a: float) -> float:
        # mu > 0 with epsilon = mu a + mu^2 / 2, without cancellation on either side of 0.
        root = math.sqrt(a * a + 2.0 * epsilon)
        return 2.0 * epsilon / (a + root) if a > 0.0 else root - a

    a = _solve_for_a(lambda a: _log_delta(a, mu_at(a)) - log_delta, delta, lowest=-math.inf)
    return mu_at(a) ** 2 / 2.0


def sigma_for_epsilon(sensitivity: float, epsilon: float, delta: float, rounds: int) -> float:
    """The noise of each of ``rounds`` Gaussian releases that together have this exact epsilon."""
    _non_negative("sensitivity", sensitivity)
    if not (1 <= rounds <= MOST and rounds == int(rounds)):
        raise BadInput("rounds", rounds, f"give a whole number from 1 to {MOST:,}.")
    rho = gaussian_rho_for_epsilon(epsilon, delta) / rounds
    if rho == 0.0:
        raise BadInput("epsilon", epsilon, "needs more noise than a number can hold: raise it.")
    return sigma_for_rho(sensitivity, rho)


def sigma_for_rho(sensitivity: float, rho: float) -> float:
    """The noise of a Gaussian release that costs ``rho``: inverse of ``gaussian_rho``."""
    if rho == 0.0:
        return math.inf if sensitivity > 0.0 else 0.0
    return sensitivity / math.sqrt(2.0 * rho)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Upper bound of epsilon for ANY rho-zCDP mechanism, the tight one.

    The least over a > 1 of ``rho a + [ln(1/delta) + (a-1) ln(1-1/a) - ln a] / (a-1)``. Its
    derivative vanishes where ``rho (a-1)^2 + ln a = ln(1/delta)``, which has one root.
    """
    _non_negative("rho", rho, infinity=True)
    log_inverse = -math.log(_probability("delta", delta))
    if rho == 0.0 or math.isinf(rho):
        return rho

    def slope(t: float) -> float:
        return math.exp(2.0 * t + math.log(rho)) + math.log1p(math.exp(t)) - log_inverse

    # With t = ln(a - 1): above `alone` the first term is too much by itself; at the lower end
    # each term is less than half of the whole.
    alone = (math.log(log_inverse) - math.log(rho)) / 2.0
    t = _root(slope, min(alone, _log_expm1(log_inverse / 2.0)) - 1.0, alone + 1.0)
    less = math.exp(t)  # a - 1
    bound = rho * (1.0 + less) + (log_inverse - math.log1p(less)) / less - math.log1p(1.0 / less)
    return max(bound, 0.0)


def zcdp_epsilon_classic(rho: float, delta: float) -> float:
    """Upper bound of epsilon for ANY rho-zCDP mechanism: ``rho + 2 sqrt(rho ln(1/delta))``."""
    _non_negative("rho", rho, infinity=True)
    log_inverse = -math.log(_probability("delta", delta))
    return rho + 2.0 * math.sqrt(rho * log_inverse) if math.isfinite(rho) else rho


def _solve_for_a(function: Callable[[float], float], delta: float, lowest: float) -> float:
    """The root of a decreasing function of ``a = epsilon/mu - mu/2`` that compares with delta.

    As the delta of ``a`` is below Phi(-a), one above the quantile is too high; search from there.
    """
    from scipy.special import ndtri  # slow to import, and a message that does no sums needs none

    highest, below = 1.0 - float(ndtri(delta)), 2.0
    while highest - below > lowest and function(highest - below) <= 0.0:
        below *= 2.0
    return _root(function, max(highest - below, lowest), highest)


def _log_delta(a: float, mu: float) -> float:
    """The logarithm of Phi(-a) - e^epsilon Phi(-a - mu), where epsilon = mu a + mu^2 / 2.

    As e^epsilon phi(a + mu) = phi(a), both terms carry phi(a); what is left is a drop of erfcx.
    So nothing overflows, and nothing cancels that a double could have kept.
    """
    from scipy.special import erfcx, ndtr

    x, width = a / _SQRT_2, mu / _SQRT_2
    if x < -1.0:
        return math.log(float(ndtr(-a)) - math.exp(-x * x) * float(erfcx(x + width)) / 2.0)
    half = _erfcx_drop(x, width) / 2.0
    return math.log(half) - x * x if half > 0.0 else -math.inf


def _erfcx_drop(x: float, width: float) -> float:
    """erfcx(x) - erfcx(x + width), also where the two are almost equal."""
    from scipy.special import erfcx

    if width > 1e-5 * max(1.0, abs(x)):
        return float(erfcx(x)) - float(erfcx(x + width))
    middle = x + width / 2.0
    if middle > 50.0:  # by the asymptotic series: here the closed form would cancel
        square = middle * middle
        return width / _SQRT_PI * (1.0 - 1.5 / square + 3.75 / (square * square)) / square
    return width * 2.0 * (1.0 / _SQRT_PI - middle * float(erfcx(middle)))


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # slow to import, and workers never need it

    return float(brentq(function, low, high, xtol=1e-18, rtol=1e-15, maxiter=500))


def _non_negative(field: str, value: float, *, infinity: bool = False) -> float:
    if not value >= 0.0 or (math.isinf(value) and not infinity):
        raise BadInput(field, value, "give a finite number, 0 or more.")
    return value


def _probability(field: str, value: float) -> float:
    if not 0.0 < value < 1.0:
        raise BadInput(field, value, "give a number between 0 and 1, both excluded.")
    return value
