"""Uniform DP: nobody trades, every owner adds all the noise."""

from __future__ import annotations

from noisemarket.game.environment import Environment
from noisemarket.mechanisms.mechanism import Contracts, RunOptions, Unasked, same_for_all


class UniformDP(Unasked):
    """Saving 0 and payment 0 for all: where the market starts from."""

    knows = "nothing"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return same_for_all(len(environment), 0, 0)
