"""The exact answers as mechanisms, to compare the learned ones with."""

from __future__ import annotations

from abc import abstractmethod

from noisemarket.game.environment import Environment
from noisemarket.game.equilibrium import equilibrium, first_best
from noisemarket.game.levels import FloatArray
from noisemarket.game.outcomes import Outcomes
from noisemarket.game.protocol import Games
from noisemarket.mechanisms.lying import gained_by_costs
from noisemarket.mechanisms.mechanism import Agreement, Contracts, Direct, RunOptions, by_slices


class Oracle(Direct):
    """An exact answer, owner by owner, from all preferences of both sides."""

    knows = "everything"

    @abstractmethod
    def solve(self, games: Games) -> Outcomes:
        """The answer to each of these games."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return by_slices(environment, lambda some: self.solve(environment.games(some=some)))

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


class Equilibrium(Oracle):
    """The equilibrium of the protocol: what perfectly rational sides would sign."""

    def solve(self, games: Games) -> Outcomes:
        return equilibrium(games)
