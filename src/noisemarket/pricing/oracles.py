"""Mechanisms that ask nobody: the exact answers, and the two ends between which all others lie."""

from __future__ import annotations

from abc import abstractmethod

from noisemarket.game.environment import Environment
from noisemarket.game.equilibrium import CheapestDeals, equilibrium, first_best
from noisemarket.game.protocol import Contracts, Games
from noisemarket.pricing.mechanism import Direct, RunOptions


class Oracle(Direct):
    """An exact answer, owner by owner, from all preferences of both sides."""

    knows = "everything"

    @abstractmethod
    def solve(self, games: Games) -> Contracts:
        """The answer to each of these games."""

    @abstractmethod
    def choose(self, deals: CheapestDeals) -> Contracts:
        """The same for signed games, whose answers lie among the cheapest deals."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        def solve(some: slice) -> Contracts:
            if environment.protocol == "signed" and environment.behaviour.exact:
                sides = environment.owner_side(some=some), environment.curator_side(some=some)
                return self.choose(CheapestDeals.between(*sides))  # no tables: many times faster
            return self.solve(environment.games(some=some))

        return Contracts.joined([solve(some) for some in environment.slices()])


class FirstBest(Oracle):
    """The contracts that a curator with full knowledge would choose."""

    def solve(self, games: Games) -> Contracts:
        return first_best(games)

    def choose(self, deals: CheapestDeals) -> Contracts:
        return deals.best_for_curator()


class Equilibrium(Oracle):
    """The equilibrium of the protocol: what perfectly rational sides would sign."""

    def solve(self, games: Games) -> Contracts:
        return equilibrium(games)

    def choose(self, deals: CheapestDeals) -> Contracts:
        return deals.best_for_owner()


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
