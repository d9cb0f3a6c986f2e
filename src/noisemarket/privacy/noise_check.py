"""The curator's tests of an upload: is the noise in it the contracted one, Gaussian, and new?

Every test accuses an honest owner at a stated rate, which is exact or a proven upper bound.

**Amount.** A protection that adds noise once uploads ``global + update + noise``, where the
contract bounds the update's norm by the clip. So ||upload - global||^2 / sigma^2 of an honest owner
follows the noncentral chi-square law with one degree per parameter and a noncentrality between 0
(it learned nothing) and (clip / sigma)^2. Beyond the upper tail of the latter there is too much
noise, beyond the lower tail of the former too little. Where nothing clips, as in protection
``paper``, the clip is infinite: too little noise can still be found. Under DP-SGD later steps react
to earlier noise, and that law does not hold. The triangle inequality does: the noise alone has a
chi-square length, and the rest of the upload is no longer than all its clipped steps together
(``check_steps``).

For the other tests, an upload over its sigma is x = m + g: standard Gaussian noise g, and a shift m
of length at most M = clip / sigma, whatever the owner learned. In the round itself m does not
depend on g. Where nothing bounds a shift (M infinite), the sides that need a bound are open.

**Blocks.** The squared length of b coordinates follows a noncentral chi-square law with b degrees
and a noncentrality between 0 and M^2. So noise has to be everywhere.

**Distribution.** The empirical characteristic function: sum cos(t x) / sqrt(d) has the mean
sqrt(d) exp(-t^2/2), lowered by at most exp(-t^2/2) t^2 M^2 / (2 sqrt(d)) through the shift;
sum sin(t x) / sqrt(d) has the mean 0, moved by at most exp(-t^2/2) t M. Around their means both are
sums of d independent values within -1..1, so that Hoeffding's bound exp(-h^2 / 2) holds; over
rounds too (Azuma), for a shift may depend on all rounds before.

**Copies of others in the same round.** <x_i, x_j> = <m_i, m_j> + <m_i, g_j> + <g_i, x_j>: at most
M_i M_j, and two Gaussian terms of deviations at most M_i and exactly ||x_j||. A copy has about d.

**Copies of own earlier rounds.** A shift reacts to the owner's earlier noise through the global
model, so only ||m|| <= M can be counted on. The curator stores a sketch: k sums of d / k
coordinates each, with secret random signs, and of each sum its sign: k bits. Fresh noise makes
these bits of fair coins; a shift moves each by at most sqrt(2 / pi) / 2 of its own size; agreeing
bits beyond that have Hoeffding's bound. The same upload once more agrees in all.

No test of noise finds an owner that trains nothing and uploads fresh noise of the right size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.formats import Infinite
from noisemarket.privacy.noise import FloatArray, rounding_reach

Bits = NDArray[np.uint8]
Method = Literal["norm", "differences", "clip", "reach"]
Verdict = Literal["as contracted", "too much noise", "too little noise"]

LOW_SIGMA = 0.02
"""Below, an update can be as long as the noise: look at differences of neighbouring coordinates,
too."""

BLOCK = 100
"""Coordinates in a block, at least: one has to hold more noise than learning can hide."""

FREQUENCIES = 1.0, 2.0, 3.0
"""Where the characteristic function is taken, in units of 1 / sigma (``curve_sums`` knows them)."""

CURVES = 2 * len(FREQUENCIES)
"""How many sums the test of distribution has: a cosine and a sine at each frequency."""

_DAMPING = np.exp(-np.square(FREQUENCIES) / 2.0)

SKETCH_BITS = 512
"""Bits that are kept of an upload, at most: one for every two coordinates."""

AT_ONCE = 1024
"""Owners whose products are taken at a time, which bounds the memory."""

_SLOPE = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Evidence:
    """What the check saw, enough to repeat the judgement.

    ``statistic`` is the squared length over sigma^2 (over 1 without noise) and ``largest_shift``
    the largest noncentrality of an honest owner. Outside ``lowest`` to ``highest`` the verdict is
    against the owner. ``z_score`` measures the distance from the nearest honest law.
    """

    method: Method
    statistic: Infinite
    degrees: int
    largest_shift: Infinite
    lowest: Infinite
    highest: Infinite
    z_score: Infinite
    verdict: Verdict

    @property
    def noise_ratio(self) -> float:
        """Noise seen over noise contracted, counting the update as noise."""
        return math.sqrt(self.statistic / self.degrees)


def alarm_rate(false_alarm: float, owners: int, rounds: int) -> float:
    """The rate for one side of one test: every owner, every round, alone and pooled, two sides."""
    return false_alarm / (4.0 * owners * rounds)


def check_upload(difference: NDArray[Any], sigma: float, clip: float, rate: float) -> Evidence:
    """Judge one upload, less the global model, at this contracted noise and clip.

    An honest owner is accused at ``rate`` on each side. Below ``LOW_SIGMA`` a second test takes
    differences of neighbouring coordinates, in which an update that is alike in neighbours mostly
    cancels. The two share ``rate``; the evidence is the norm's if it accuses, else the
    differences'.
    """
    values = _finite_values(difference)
    if sigma == 0.0:
        return _check_clip(values, clip)
    shift, low = (clip / sigma) ** 2, sigma < LOW_SIGMA
    if low:
        rate /= 2.0
    by_norm = _judge("norm", _squared_length(values) / sigma**2, values.size, shift, rate)
    if not low or by_norm.verdict != "as contracted":
        return by_norm
    apart = (values[0 : values.size - 1 : 2] - values[1::2]) / math.sqrt(2.0)
    statistic = _squared_length(apart) / sigma**2
    return _judge("differences", statistic, apart.size, shift, rate)


def check_steps(difference: NDArray[Any], sigma: float, reach: float, rate: float) -> Evidence:
    """Judge an upload whose noise came in steps that may have reacted to each other.

    ``reach`` is the greatest length of the upload without its noise.
    """
    values = _finite_values(difference)
    if sigma == 0.0:
        return _check_clip(values, reach)
    degrees, far = values.size, reach / sigma
    length = math.sqrt(_squared_length(values)) / sigma
    least, most = max(length - far, 0.0), length + far  # lengths of the noise alone
    above, below = (tail_score(noise * noise, degrees, 0.0) for noise in (least, most))
    short, long = (math.sqrt(square) for square in chi_square_limits(degrees, 0.0, rate))
    limits = max(short - far, 0.0) ** 2, (long + far) ** 2
    return _evidence("reach", length * length, degrees, far**2, limits, above, below, rate)


def check_pool(rounds: Sequence[Evidence], rate: float) -> Evidence:
    """Judge several rounds of one owner together: finds what is too small to show in one."""
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
    limits = chi_square_limits(degrees, shift, rate)
    return _evidence(method, statistic, degrees, shift, limits, above, below, rate)


def _evidence(
    method: Method,
    statistic: float,
    degrees: int,
    shift: float,
    limits: tuple[float, float],
    above: float,
    below: float,
    rate: float,
) -> Evidence:
    """``above`` and ``below`` are the scores by the laws of the most and of the least noise."""
    largest = _sigmas(rate)
    verdict: Verdict = "as contracted" if below >= -largest else "too little noise"
    if not above <= largest:  # NaN is an accusation, too
        verdict = "too much noise"
    z_score = max(above, 0.0) + min(below, 0.0)
    return Evidence(method, statistic, degrees, shift, *limits, z_score, verdict)


def _finite_values(difference: NDArray[Any]) -> FloatArray:
    values = np.asarray(difference, dtype=np.float64).reshape(-1)
    if values.size < 2 or not np.isfinite(values).all():
        raise BadInput("upload", "array", "needs at least two values, all finite.")
    return values


def _check_clip(values: FloatArray, clip: float) -> Evidence:
    """Without noise nothing is random: the update must respect its clip, up to rounding."""
    squared = _squared_length(values)
    highest = (clip * (1.0 + 1e-6) + rounding_reach(values.size)) ** 2
    if squared <= highest:
        return Evidence("clip", squared, values.size, clip**2, 0.0, highest, 0.0, "as contracted")
    return Evidence("clip", squared, values.size, clip**2, 0.0, highest, math.inf, "too much noise")


def _squared_length(values: FloatArray) -> float:
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

    return -float(ndtri(rate))


@dataclass(frozen=True)
class UploadFinding:
    """What a test found against an upload: ``statistic`` is outside ``lowest`` to ``highest``."""

    test: str
    reason: str
    statistic: float
    lowest: float
    highest: float
    rounds: int = 1


def hoeffding(rate: float) -> float:
    """How far a sum of independent values of -1..1, over the root of their number, strays.

    Example:
        >>> round(hoeffding(1e-3), 3)
        3.717
    """
    return math.sqrt(-2.0 * math.log(rate))


@lru_cache(maxsize=16)
def blocks_of(dimension: int) -> NDArray[np.int64]:
    """Where the blocks begin; a vector that is too short for two has none."""
    number = dimension // BLOCK
    if number < 2:
        return np.zeros(0, np.int64)
    return (np.arange(number) * dimension) // number


@lru_cache(maxsize=16)
def _sizes(dimension: int) -> tuple[tuple[int, NDArray[np.bool_]], ...]:
    """The sizes of blocks, and which blocks have them."""
    sizes = np.diff(blocks_of(dimension), append=dimension)
    return tuple((int(size), sizes == size) for size in np.unique(sizes))


def check_blocks(values: FloatArray, bound: float, rate: float) -> UploadFinding | None:
    """Test the noise of every block of coordinates of an upload over its sigma; ``bound`` is M."""
    starts = blocks_of(values.size)
    if not starts.size:
        return None
    squares = np.add.reduceat(np.square(values), starts)
    for size, which in _sizes(values.size):
        own = squares[which]
        low, high = chi_square_limits(size, bound * bound, rate)
        for value, reason in (
            (float(own.min()), "too little noise in part of the upload"),
            (float(own.max()), "too much noise in part of the upload"),
        ):
            if not low <= value <= high:
                return UploadFinding("blocks", reason, value, low, high)
    return None


def curve_sums(values: FloatArray) -> FloatArray:
    """Sum cos(t x), then sum sin(t x), each for all frequencies, over sqrt(d), less their means."""
    root = math.sqrt(values.size)
    single = values.astype(np.float32)  # many times as fast, and exact enough for these limits
    cosine, sine = np.cos(single).astype(np.float64), np.sin(single).astype(np.float64)
    square, cube = np.square(cosine).sum(), (np.square(cosine) * cosine).sum()
    first, other = cosine.sum(), sine.sum()
    # Of twice and three times the angle, by those of the angle itself.
    cosines = np.array([first, 2.0 * square - values.size, 4.0 * cube - 3.0 * first])
    bent = (np.square(sine) * sine).sum()
    sines = np.array([other, 2.0 * (sine * cosine).sum(), 3.0 * other - 4.0 * bent])
    return np.concatenate([cosines / root - root * _DAMPING, sines / root])


@lru_cache(maxsize=4096)
def _curve_limits(dimension: int, bound: float, rounds: int, rate: float) -> tuple[FloatArray, ...]:
    """The lowest and highest sums of so many rounds together, over the root of their number."""
    reach, root, times = hoeffding(rate), math.sqrt(dimension), math.sqrt(rounds)
    t = np.array(FREQUENCIES)
    fall = _DAMPING * np.minimum((t * bound) ** 2 / 2.0 / root, 2.0 * root) * times
    turn = _DAMPING * np.minimum(t * bound, root) * times
    low = np.concatenate([-reach - fall, -reach - turn])
    high = np.concatenate([np.full(len(t), reach), reach + turn])
    return low, high


def check_curves(
    sums: FloatArray, dimension: int, bound: float, rounds: int, rate: float
) -> UploadFinding | None:
    """Test the distribution of the noise by ``curve_sums``, of one round or added over several.

    ``bound`` is M; an honest owner is accused at ``rate`` by one side of one sum.
    """
    low, high = _curve_limits(dimension, bound, rounds, rate)
    scaled = sums / math.sqrt(rounds)
    beyond = np.maximum(low - scaled, scaled - high)
    worst = int(beyond.argmax())
    if beyond[worst] <= 0.0:
        return None
    reason = "the noise is not Gaussian"
    if rounds > 1:
        reason += " over the rounds so far"
    value, lowest, highest = (float(values[worst]) for values in (scaled, low, high))
    return UploadFinding("distribution", reason, value, lowest, highest, rounds)


@dataclass(frozen=True)
class Sketch:
    """Some bits of an upload that tell it from others, by a seed that must stay secret."""

    dimension: int
    seed: int

    @property
    def bits(self) -> int:
        """How many bits: a multiple of 8; none for a vector that is too short."""
        return min(SKETCH_BITS, self.dimension // 2) // 8 * 8

    @cached_property
    def _plan(self) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(self.dimension)
        signs = (2.0 * rng.integers(0, 2, self.dimension) - 1.0).astype(np.float32)
        starts = (np.arange(self.bits) * self.dimension) // self.bits
        return order, signs, starts

    def of(self, uploads: NDArray[np.float32]) -> Bits:
        """The bits of some uploads, one row for each, packed into bytes."""
        return np.packbits(self._sums(uploads) > 0.0, axis=1)

    def projected(self, uploads: NDArray[np.float32]) -> NDArray[np.float32]:
        """Uploads in so many dimensions as there are bits: noise stays noise of deviation 1, and
        no shift gets longer."""
        _, _, starts = self._plan
        roots = np.sqrt(np.diff(starts, append=self.dimension)).astype(np.float32)
        return self._sums(uploads) / roots

    def _sums(self, uploads: NDArray[np.float32]) -> NDArray[np.float32]:
        order, signs, starts = self._plan
        sums = np.empty((len(uploads), self.bits), np.float32)
        for first in range(0, len(uploads), AT_ONCE):  # bounds the memory
            some = slice(first, first + AT_ONCE)
            np.add.reduceat(uploads[some][:, order] * signs, starts, axis=1, out=sums[some])
        return sums

    def most_agreeing(self, bound: float, rate: float) -> float:
        """How many bits of a fresh upload agree with given ones, at most.

        The random signs spread a shift over the sums: in units of their deviation, these move by
        at most M sqrt(k / s) together, for sums of s coordinates, and by z M / 2 more at most at
        the rate exp(-z^2 / 2).
        """
        reach, k = hoeffding(rate / 2.0), self.bits
        moved = bound * (math.sqrt(k / (self.dimension // k)) + reach / 2.0)
        return k / 2.0 + _SLOPE * moved + reach * math.sqrt(k) / 2.0


def agreeing(new: Bits, before: Bits) -> NDArray[np.int64]:
    """In how many bits sketches agree, over the last axis."""
    apart = np.unpackbits(np.bitwise_xor(new, before), axis=-1)
    return np.asarray(8 * new.shape[-1] - apart.sum(axis=-1, dtype=np.int64))


@dataclass(frozen=True)
class Likeness:
    """Two uploads of a round whose noise is not independent: rows, product and its limit."""

    first: int
    second: int
    product: float
    limit: float


def alike(
    uploads: NDArray[np.float32], bounds: FloatArray, rate: float, *, in_steps: bool = False
) -> Iterator[Likeness]:
    """All pairs of a round's uploads, each a row over its sigma, whose noise is related.

    ``bounds`` are the owners' M; two honest owners are found at ``rate`` on each side.
    ``in_steps``: a shift may have reacted to the noise of its own round (DP-SGD).
    """
    limit = _sigmas(rate / 2.0)
    lengths = np.sqrt(np.einsum("nd,nd->n", uploads, uploads, dtype=np.float64))
    for start in range(0, len(uploads), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        for other in range(start, len(uploads), AT_ONCE):
            more = slice(other, other + AT_ONCE)
            products = uploads[some] @ uploads[more].T
            near = bounds[some, None]
            if in_steps:
                limits = (near + limit) * lengths[None, more]
            else:
                limits = near * bounds[None, more] + limit * (near + lengths[None, more])
            for row, column in np.argwhere(np.abs(products) > limits).tolist():
                one, two = start + row, other + column
                if one < two:
                    found = float(products[row, column]), float(limits[row, column])
                    yield Likeness(one, two, *found)
