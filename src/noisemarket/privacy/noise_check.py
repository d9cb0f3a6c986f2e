"""The curator's check that the noise in an upload is the contracted one, neither more nor less.

A protection that adds noise once uploads ``global + update + noise``, where the contract bounds the
update's norm by the clip. So ||upload - global||^2 / sigma^2 of an honest owner follows the
noncentral chi-square law with one degree per parameter and a noncentrality between 0 (it learned
nothing) and (clip / sigma)^2. Beyond the upper tail of the latter there is too much noise, beyond
the lower tail of the former too little, at exactly the stated rate of false alarms. Where nothing
clips, as in protection ``paper``, give an infinite clip: too little noise can still be found.

Under DP-SGD later steps react to earlier noise, and that law does not hold. What holds whatever
they do is the triangle inequality: the noise alone has a chi-square length, and the rest of the
upload is no longer than all its clipped steps together (``check_steps``).

These see the length alone. ``noise_shape`` asks whether the noise is Gaussian everywhere, and
``noise_repeats`` whether it is new. No test of noise finds an owner that trains nothing and uploads
fresh noise of the right size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.privacy.noise import rounding_reach

Method = Literal["norm", "differences", "clip", "reach"]
Verdict = Literal["as contracted", "too much noise", "too little noise"]

LOW_SIGMA = 0.02
"""Below, an update can be as long as the noise: look at differences of neighbouring coordinates,
too."""


@dataclass(frozen=True)
class Evidence:
    """What the check saw, enough to repeat the judgement.

    ``statistic`` is the squared length over sigma^2 (over 1 without noise), ``degrees`` its degrees
    of freedom and ``largest_shift`` the largest noncentrality of an honest owner. Outside
    ``lowest`` to ``highest`` the verdict is against the owner. ``z_score`` measures the distance
    from the nearest honest law, in standard deviations of a Gaussian with the same tail.
    """

    method: Method
    statistic: float
    degrees: int
    largest_shift: float
    lowest: float
    highest: float
    z_score: float
    verdict: Verdict

    @property
    def noise_ratio(self) -> float:
        """Noise seen over noise contracted, counting the update as noise."""
        return math.sqrt(self.statistic / self.degrees)


def alarm_rate(false_alarm: float, owners: int, rounds: int) -> float:
    """The rate for one side of one test, so that a whole job accuses any honest owner that rarely.

    Every owner is tested in every round, alone and pooled with the rounds before, on two sides.
    """
    if owners < 1 or rounds < 1:
        raise BadInput("owners, rounds", (owners, rounds), "give at least 1 of each.")
    return _rate(false_alarm) / (4.0 * owners * rounds)


def check_upload(difference: NDArray[Any], sigma: float, clip: float, rate: float) -> Evidence:
    """Judge one upload.

    Below ``LOW_SIGMA`` a second test takes differences of neighbouring coordinates, in which an
    update that is alike in neighbours mostly cancels. Too little noise then shows without any
    assumption. The two tests share ``rate``; the evidence is that of the norm if it accuses, else
    that of the differences.

    Args:
        difference: upload minus global model.
        sigma: the contracted noise.
        clip: the contracted bound on the update's norm; infinity if there is none.
        rate: how often an honest owner is accused, on each side, from ``alarm_rate``.

    Raises:
        BadInput: a value is out of range, or the upload has fewer than two values or is not finite.
    """
    values = _checked(difference, sigma, clip)
    if sigma == 0.0:
        return _check_clip(values, clip)
    shift, low = (clip / sigma) ** 2, sigma < LOW_SIGMA
    if low:
        rate = _rate(rate) / 2.0
    by_norm = _judge("norm", _squared_length(values) / sigma**2, values.size, shift, rate)
    if not low or by_norm.verdict != "as contracted":
        return by_norm
    apart = (values[0 : values.size - 1 : 2] - values[1::2]) / math.sqrt(2.0)
    statistic = _squared_length(apart) / sigma**2
    return _judge("differences", statistic, apart.size, shift, rate)


def check_steps(difference: NDArray[Any], sigma: float, reach: float, rate: float) -> Evidence:
    """Judge an upload whose noise came in steps that may have reacted to each other.

    An honest owner is accused at most at ``rate``; it finds a little less than ``check_upload``,
    and takes the same but for ``reach``, the greatest length of the upload without its noise.
    """
    values = _checked(difference, sigma, reach)
    if sigma == 0.0:
        return _check_clip(values, reach)
    degrees, far = values.size, reach / sigma
    length = math.sqrt(_squared_length(values)) / sigma
    least, most = max(length - far, 0.0), length + far  # lengths of the noise alone
    above, below = (tail_score(noise * noise, degrees, 0.0) for noise in (least, most))
    short, long = (math.sqrt(square) for square in chi_square_limits(degrees, 0.0, rate))
    return Evidence(
        method="reach",
        statistic=length * length,
        degrees=degrees,
        largest_shift=far**2,
        lowest=max(short - far, 0.0) ** 2,
        highest=(long + far) ** 2,
        z_score=_z_score(above, below),
        verdict=_verdict(above, below, rate),
    )


def check_pool(rounds: Sequence[Evidence], rate: float) -> Evidence:
    """Judge several rounds of one owner together: finds what is too small to show in one.

    Rounds that were pooled before may be pooled with more.
    """
    methods = {evidence.method for evidence in rounds}
    if not rounds or methods & {"clip", "reach"}:
        raise BadInput("rounds", len(rounds), "pool at least one round, all of noise added once.")
    return _judge(
        "differences" if "differences" in methods else "norm",
        math.fsum(evidence.statistic for evidence in rounds),
        sum(evidence.degrees for evidence in rounds),
        math.fsum(evidence.largest_shift for evidence in rounds),
        rate,
    )


def chi_square_limits(degrees: int, shift: float, rate: float) -> tuple[float, float]:
    """Between which limits a squared length stays, beyond each of which it is at ``rate``.

    Its noncentrality is anything up to ``shift``; infinity for no limit above.
    """
    limit = _sigmas(rate)
    return _quantile(degrees, 0.0, -limit), _quantile(degrees, shift, limit)


def tail_score(statistic: float, degrees: int, shift: float) -> float:
    """The z for which a Gaussian exceeds z as often as this chi-square law exceeds ``statistic``.

    Saddlepoint approximation (Barndorff-Nielsen's r*), right in both tails: the probability is good
    to 3e-4 of itself from 50 degrees on, to 1e-8 at 80,000.
    """
    if statistic <= 0.0 or math.isinf(shift):
        return -math.inf
    if math.isinf(statistic):
        return math.inf
    part = degrees / statistic
    w = 2.0 / (part + math.sqrt(part * part + 4.0 * shift / statistic))
    t = (1.0 - 1.0 / w) / 2.0  # the saddlepoint, where the tilted law has its mean
    cumulant = shift * t * w + degrees / 2.0 * math.log(w)
    r = math.copysign(math.sqrt(max(2.0 * (t * statistic - cumulant), 0.0)), t)
    u = t * w * math.sqrt(4.0 * shift * w + 2.0 * degrees)
    if abs(r) < 1e-3:  # at the mean the formula is 0 / 0: take its limit, a sixth of the skewness
        variance = 2.0 * degrees + 4.0 * shift
        third = (8.0 * degrees + 24.0 * shift) / variance
        return (statistic - degrees - shift + third / 6.0) / math.sqrt(variance)
    return r + math.log(u / r) / r


def _judge(method: Method, statistic: float, degrees: int, shift: float, rate: float) -> Evidence:
    above, below = tail_score(statistic, degrees, shift), tail_score(statistic, degrees, 0.0)
    lowest, highest = chi_square_limits(degrees, shift, rate)
    return Evidence(
        method=method,
        statistic=statistic,
        degrees=degrees,
        largest_shift=shift,
        lowest=lowest,
        highest=highest,
        z_score=_z_score(above, below),
        verdict=_verdict(above, below, rate),
    )


def _checked(difference: NDArray[Any], sigma: float, clip: float) -> NDArray[np.float64]:
    if not 0.0 <= sigma < math.inf:
        raise BadInput("sigma", sigma, "give a number that is not negative.")
    if not clip > 0.0:
        raise BadInput("clip", clip, "give a positive number.")
    values = np.asarray(difference, dtype=np.float64).reshape(-1)
    if values.size < 2 or not np.isfinite(values).all():
        raise BadInput("upload", "array", "needs at least two values, all finite.")
    return values


def _z_score(above: float, below: float) -> float:
    """How far an upload lies from the nearest honest law."""
    return max(above, 0.0) + min(below, 0.0)


def _verdict(above: float, below: float, rate: float) -> Verdict:
    """From how far beyond the laws of the most and of the least noise an upload lies."""
    limit = _sigmas(rate)
    if not above <= limit:  # NaN is an accusation, too
        return "too much noise"
    return "as contracted" if below >= -limit else "too little noise"


def _check_clip(values: NDArray[np.float64], clip: float) -> Evidence:
    """Without noise nothing is random: the update must respect its clip, up to rounding."""
    squared = _squared_length(values)
    highest = (clip * (1.0 + 1e-6) + rounding_reach(values.size)) ** 2
    within = squared <= highest
    return Evidence(
        method="clip",
        statistic=squared,
        degrees=values.size,
        largest_shift=clip**2,
        lowest=0.0,
        highest=highest,
        z_score=0.0 if within else math.inf,
        verdict="as contracted" if within else "too much noise",
    )


def _squared_length(values: NDArray[np.float64]) -> float:
    # Not `values @ values`: BLAS would start threads, and sums in an order of its own.
    with np.errstate(over="ignore"):  # beyond all bounds is a length, too
        return float(np.square(values).sum())


@lru_cache(maxsize=4096)  # contracts are few, uploads many
def _quantile(degrees: int, shift: float, score: float) -> float:
    """The statistic with this ``tail_score``."""
    if math.isinf(shift):
        return math.inf
    from scipy.optimize import brentq  # slow to import, and owners never need it

    mean, spread = degrees + shift, math.sqrt(2.0 * degrees + 4.0 * shift)
    low = high = mean
    while tail_score(low, degrees, shift) > score:
        low /= 1.0 + spread / mean
    while tail_score(high, degrees, shift) < score:
        high += spread
    return float(brentq(lambda x: tail_score(x, degrees, shift) - score, low, high, rtol=1e-13))


def _sigmas(rate: float) -> float:
    from scipy.special import ndtri  # slow to import, and owners never need it

    return -float(ndtri(_rate(rate)))


def _rate(rate: float) -> float:
    if not 0.0 < rate < 1.0:
        raise BadInput("false alarm rate", rate, "give a number between 0 and 1, both excluded.")
    return rate
