"""The prices of a clock auction: what owners of each size are asked about at each step.

With one price all are asked about the same payment level. With scores, what owners are offered
falls in proportion to their scores: all begin at the highest payment, and who adds less to the
model is offered less sooner. Scores follow from public figures and are fixed before the first
price, so no answer changes them.
"""

from __future__ import annotations

import math

import numpy as np

from noisemarket.game.levels import FloatArray, IntArray

MOST_STEPS = 36
"""Prices that an owner is asked about at most: a finer grid is passed in larger steps. With its
key, the contract and the signature an owner has 40 messages before training at most."""

SCORED_STEPS = 100
"""Steps of a clock with scores. Only owners whose own price falls are asked at a step."""

LEAST_SCORE = 1.0 / 40.0
"""No score is lower, of 1 at the most: the steps would be too large."""


def price_levels(payment_levels: int) -> list[int]:
    """The payment levels that the clock passes, highest first; none is 0."""
    stride = math.ceil(payment_levels / MOST_STEPS)
    return list(range(payment_levels, 0, -stride))


class FallingPrices:
    """Prices by step and size, as payment levels that never rise.

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
