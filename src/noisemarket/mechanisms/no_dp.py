"""No DP: all noise is given up for nothing; an upper bound of utility that nobody agreed to."""

from __future__ import annotations

from noisemarket.game.environment import Environment
from noisemarket.mechanisms.mechanism import Contracts, RunOptions, Unasked, same_for_all


class NoDP(Unasked):
    """Saving sigma_max and payment 0 for all."""

    knows = "nothing"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return same_for_all(len(environment), environment.levels.saving_levels, 0)
