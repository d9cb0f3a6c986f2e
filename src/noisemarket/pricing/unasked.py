"""Mechanisms that ask nobody: the two ends between which all others lie."""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.pricing.mechanism import (
    Agreement,
    Contracts,
    Direct,
    RunOptions,
    same_for_all,
)


class Unasked(Direct):
    """A mechanism that asks owners for nothing, so that there is nothing to lie about."""

    knows = "nothing"

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray | None:
        return np.zeros(len(environment))


class UniformDP(Unasked):
    """Nobody trades, every owner adds all the noise: where the market starts from."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return same_for_all(len(environment), 0, 0)


class NoDP(Unasked):
    """All noise is given up for nothing: an upper bound of utility that nobody agreed to."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return same_for_all(len(environment), environment.levels.saving_levels, 0)
