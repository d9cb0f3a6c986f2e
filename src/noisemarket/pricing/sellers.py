"""Who would still sell in a clock auction, what that is worth, and the prices that they are asked
about: public figures only.

Owners of one size weigh alike. So all sums are taken over sizes, and depend neither on the order of
the owners nor, where all have one size, on their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.pricing.joint import JointValue

MOST_STEPS = 36
"""Prices that an owner is asked about at most: a finer grid is passed in larger steps. With its
key, the contract and the signature an owner has 40 messages before training at most."""

SCORED_STEPS = 100
"""Steps of a clock with scores. Only owners whose own price falls are asked at a step."""

LEAST_SCORE = 1.0 / 40.0
"""No score is lower, of 1 at the most: the steps would be too large."""


class Sellers:
    """All owners at first; some leave.

    Args:
        joint: what contracts are worth together.
        saving: the level down to which they would sell.
    """

    def __init__(self, joint: JointValue, saving: int) -> None:
        self._joint = joint
        sizes, self.size_of = np.unique(joint.records, return_inverse=True)
        self._in = joint.terms(joint.levels.sigma_left(saving), sizes)
        self._out = joint.terms(joint.levels.sigma_left(0), sizes)
        self._all = self._left = np.bincount(self.size_of, minlength=len(sizes))
        self.active: BoolArray = np.ones(len(joint), dtype=bool)

    @property
    def count(self) -> int:
        """How many are left."""
        return int(self._left.sum())

    @property
    def sizes(self) -> int:
        """How many sizes of owners there are."""
        return len(self._all)

    def added(self) -> FloatArray:
        """What an owner of each size adds to the quality if all others sell, over the most of any.

        By public figures alone, so that no answer of any owner can change it.
        """
        every, one = self._sums(self._all), self._in - self._out
        added = np.maximum(self._joint.quality(every) - self._joint.quality(every - one), 0.0)
        most = float(added.max())
        return added / most if most > 0.0 else np.ones(len(added))

    def leave(self, owners: IntArray) -> None:
        """These leave, by their index."""
        self.active[owners] = False
        self._left = self._left - np.bincount(self.size_of[owners], minlength=len(self._all))

    def quality(self) -> float:
        """The fitted quality if all who are left sell."""
        return self._quality(self._left)

    def worth(self) -> float:
        """The quality that they bring over no trade, as the curator values it."""
        return self._joint.quality_price * (self.quality() - self._quality(0 * self._left))

    def not_worth(self, prices: FloatArray) -> int:
        """How many of the lightest would have to leave for the lightest of the rest to be worth
        what owners of its size are paid; all of them if none ever is."""

        def worth_it(gone: int) -> bool:
            rest = _without_lightest(self._left, gone)
            last = self._quality(rest) - self._quality(_without_lightest(rest, 1))
            price = float(prices[int(np.argmax(rest > 0))])
            return self._joint.quality_price * last >= self._joint.money_price * price

        if self.count and worth_it(0):  # fewer sellers need not be worth more: few know little
            return 0
        return _least(worth_it, self.count)

    def spare(self, target: float) -> int:
        """How many may leave, whoever they are, with the quality still at a target."""

        def missed(gone: int) -> bool:
            rest = _without_lightest(self._left[::-1], gone)[::-1]
            return self._quality(rest) < target

        if not missed(self.count):
            return self.count
        return max(0, _least(missed, self.count) - 1)

    def _quality(self, left: IntArray) -> float:
        return float(self._joint.quality(self._sums(left)))

    def _sums(self, left: IntArray) -> FloatArray:
        parts = left[:, None] * self._in + (self._all - left)[:, None] * self._out
        return np.asarray(parts.sum(axis=0))


def _least(holds: Callable[[int], bool], most: int) -> int:
    """The least number from 0 to ``most`` for which something holds that holds for all above it;
    ``most`` if it holds for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _without_lightest(left: IntArray, count: int) -> IntArray:
    """So many of the lightest owners fewer, the sizes in ascending order."""
    lighter = np.cumsum(left) - left
    return np.asarray(left - np.minimum(np.maximum(count - lighter, 0), left))


def price_levels(payment_levels: int) -> list[int]:
    """The payment levels that the clock passes, highest first; none is 0."""
    stride = math.ceil(payment_levels / MOST_STEPS)
    return list(range(payment_levels, 0, -stride))


class FallingPrices:
    """What owners of each size are asked about at each step: payment levels that never rise.

    With one price all are asked about the same payment level. With scores, what owners are offered
    falls in proportion to their scores: all begin at the highest payment, and who adds less to the
    model is offered less sooner. Scores follow from public figures and are fixed before the first
    price, so no answer changes them.

    Args:
        payment_levels: the highest payment level.
        scores: of each size, from 0 to 1; equal ones mean one price for all.
        keep_all: whether owners are offered the lowest price at the least, rather than nothing,
            once their score is too low for it.
    """

    def __init__(self, payment_levels: int, scores: FloatArray, *, keep_all: bool) -> None:
        self._levels = np.array(price_levels(payment_levels)[::-1])
        self._scores, self._keep_all = np.maximum(scores, LEAST_SCORE), keep_all
        lowest, highest = self._levels[0], self._levels[-1]
        self._falling = self._levels[::-1].astype(float)
        if np.ptp(self._scores) > 0.0:
            self._falling = np.geomspace(highest / self._scores.min(), lowest, SCORED_STEPS)
        else:
            self._scores = np.ones(len(scores))

    def __len__(self) -> int:
        return len(self._falling)

    @property
    def lowest(self) -> int:
        """The lowest payment level that is ever asked about."""
        return int(self._levels[0])

    def at(self, step: int) -> IntArray:
        """What owners of each size are asked about; 0 for those who are offered nothing more."""
        offered = np.searchsorted(self._levels, self._scores * self._falling[step] + 1e-9, "right")
        if self._keep_all:
            offered = np.maximum(offered, 1)
        return np.where(offered > 0, self._levels[offered - 1], 0)
