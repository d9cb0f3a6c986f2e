"""Is what an owner uploads Gaussian noise, coordinate by coordinate, and not only as long as noise?

An upload over its sigma is x = m + g: standard Gaussian noise g, and a shift m that the clip bounds
by M = clip / sigma in length, whatever the owner learned. In the round itself m does not depend on
g. Two tests of one upload follow, each exact or with a proven bound on its false alarms:

- **Blocks.** The squared length of b coordinates follows a noncentral chi-square law with b degrees
  and a noncentrality between 0 and M^2. So noise has to be everywhere.
- **Distribution.** The empirical characteristic function: sum cos(t x) / sqrt(d) has the mean
  sqrt(d) exp(-t^2/2), lowered by at most exp(-t^2/2) t^2 M^2 / (2 sqrt(d)) through the shift;
  sum sin(t x) / sqrt(d) has the mean 0, moved by at most exp(-t^2/2) t M. Around their means both
  are sums of d independent values within -1..1, so that Hoeffding's bound exp(-h^2 / 2) holds. Over
  rounds it holds too (Azuma), for a shift may depend on all rounds before.

Where nothing bounds a shift (M infinite), the sides that need a bound are open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from noisemarket.privacy.noise_check import chi_square_limits

FloatArray = NDArray[np.float64]

BLOCK = 100
"""Coordinates in a block, at least: one has to hold more noise than learning can hide."""

FREQUENCIES = 1.0, 2.0, 3.0
"""Where the characteristic function is taken, in units of 1 / sigma (``curve_sums`` knows them)."""

CURVES = 2 * len(FREQUENCIES)
"""How many sums the test of distribution has: a cosine and a sine at each frequency."""

_DAMPING = np.exp(-np.square(FREQUENCIES) / 2.0)


@dataclass(frozen=True)
class UploadFinding:
    """What a test found against an upload, with enough to repeat the judgement.

    ``statistic`` is outside ``lowest`` to ``highest``. ``rounds`` says of how many uploads it is.
    """

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
    """Test the noise of every block of coordinates of an upload over its sigma.

    ``bound`` is M; an honest owner is accused at ``rate`` by one side of one block.
    """
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
