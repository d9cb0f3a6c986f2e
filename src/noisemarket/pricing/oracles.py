"""Mechanisms that ask nobody: the exact answers, and the two ends between which all others lie."""

from __future__ import annotations

from collections.abc import Callable

from noisemarket.game.environment import Environment
from noisemarket.game.equilibrium import CheapestDeals, equilibrium, first_best
from noisemarket.game.protocol import Contracts, Games
from noisemarket.pricing.mechanism import Direct, RunOptions


class Oracle(Direct):
    """An exact answer, owner by owner, from all preferences of both sides.

    ``solve`` answers games; ``choose`` the same for signed ones, among the cheapest deals.
    """

    knows = "everything"

    def __init__(
        self,
        solve: Callable[[Games], Contracts],
        choose: Callable[[CheapestDeals], Contracts],
    ) -> None:
        self.solve, self._choose = solve, choose

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        def solve(some: slice) -> Contracts:
            if environment.protocol == "signed" and environment.behaviour.exact:
                sides = environment.owner_side(some=some), environment.curator_side(some=some)
                return self._choose(CheapestDeals.between(*sides))  # no tables: many times faster
            return self.solve(environment.games(some=some))

        return Contracts.joined([solve(some) for some in environment.slices()])


FIRST_BEST = Oracle(first_best, CheapestDeals.best_for_curator)
"""The contracts that a curator with full knowledge would choose."""

EQUILIBRIUM = Oracle(equilibrium, CheapestDeals.best_for_owner)
"""The equilibrium of the protocol: what perfectly rational sides would sign."""


class UniformDP(Direct):
    """Nobody trades, every owner adds all the noise: where the market starts from."""

    knows = "nothing"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return Contracts.same(len(environment), 0, 0)


class NoDP(Direct):
    """All noise is given up for nothing: an upper bound of utility that nobody agreed to."""

    knows = "nothing"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return Contracts.same(len(environment), environment.levels.saving_levels, 0)
