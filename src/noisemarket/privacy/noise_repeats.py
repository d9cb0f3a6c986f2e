"""Is the noise in an upload new? Against the owner's own earlier uploads and those of all others.

Uploads over their sigma are x = m + g, with ||m|| <= M = clip / sigma and fresh Gaussian noise g.

- **Others of the same round.** <x_i, x_j> = <m_i, m_j> + <m_i, g_j> + <g_i, x_j>: at most M_i M_j,
  and two Gaussian terms of deviations at most M_i and exactly ||x_j||. A copy has about d.
- **Own earlier rounds.** What an owner learns reacts to its own earlier noise through the global
  model, so only ||m|| <= M can be counted on. Kept is a sketch: k sums of d / k coordinates each,
  with secret random signs, and of each sum its sign: k bits. Fresh noise makes these bits of fair
  coins; a shift moves each by at most sqrt(2 / pi) / 2 of its own size; agreeing bits beyond that
  have Hoeffding's bound. The same upload once more agrees in all.
- **Over all rounds.** The sum of n uploads over sqrt(n) is as long as noise, up to sqrt(n) M. An
  owner that pushes one way beyond its clip, in every round, has a longer one
  (``noise_check.check_steps``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from noisemarket.privacy.noise_shape import hoeffding

FloatArray = NDArray[np.float64]
Bits = NDArray[np.uint8]

SKETCH_BITS = 512
"""Bits that are kept of an upload, at most: one for every two coordinates."""

AT_ONCE = 1024
"""Owners whose products are taken at a time, which bounds the memory."""

_SLOPE = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Sketch:
    """Some bits of an upload that tell it from others, by a secret seed.

    Who knows the seed could change an upload without changing its bits.
    """

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
    """All pairs of a round's uploads, each over its sigma, whose noise is related.

    Args:
        uploads: one row for each owner.
        bounds: each owner's M; a pair without a bound is not judged.
        rate: how often two honest owners are found, on each side.
        in_steps: whether a shift may have reacted to the noise of its own round (DP-SGD).
    """
    limit = -float(ndtri(rate / 2.0))
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
