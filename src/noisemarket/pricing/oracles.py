"""The exact answers as mechanisms, to compare the learned ones with."""

from __future__ import annotations

from abc import abstractmethod

from noisemarket.game.environment import Environment
from noisemarket.game.equilibrium import CheapestDeals, equilibrium, first_best
from noisemarket.game.levels import FloatArray
from noisemarket.game.protocol import Games, Outcomes
from noisemarket.pricing.lying import gained_by_costs
from noisemarket.pricing.mechanism import Agreement, Contracts, Direct, RunOptions


class Oracle(Direct):
    """An exact answer, owner by owner, from all preferences of both sides."""

    knows = "everything"

    @abstractmethod
    def solve(self, games: Games) -> Outcomes:
        """The answer to each of these games."""

    @abstractmethod
    def choose(self, deals: CheapestDeals) -> Outcomes:
        """The same for signed games, whose answers lie among the cheapest deals."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        def solve(some: slice) -> Outcomes:
            if environment.protocol == "signed" and environment.behaviour.exact:
                sides = environment.owner_side(some=some), environment.curator_side(some=some)
                return self.choose(CheapestDeals.between(*sides))  # no tables: many times faster
            return self.solve(environment.games(some=some))

        return Contracts.joined([Contracts.of(solve(some)) for some in environment.slices()])

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray | None:
        """What an owner would gain by naming another cost, if the mechanism had to ask for it."""
        if environment.protocol != "signed":
            return None
        return gained_by_costs(environment, agreement.contracts, self.solve)


class FirstBest(Oracle):
    """The contracts that a curator who knows everything would choose."""

    def solve(self, games: Games) -> Outcomes:
        return first_best(games)

    def choose(self, deals: CheapestDeals) -> Outcomes:
        return deals.best_for_curator()


class Equilibrium(Oracle):
    """The equilibrium of the protocol: what perfectly rational sides would sign."""

    def solve(self, games: Games) -> Outcomes:
        return equilibrium(games)

    def choose(self, deals: CheapestDeals) -> Outcomes:
        return deals.best_for_owner()
