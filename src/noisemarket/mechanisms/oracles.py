"""The exact answers as mechanisms, to compare the learned ones with."""

from __future__ import annotations

from noisemarket.game.environment import Environment
from noisemarket.game.equilibrium import equilibrium, first_best
from noisemarket.mechanisms.mechanism import Contracts, Direct, RunOptions, by_slices


class FirstBest(Direct):
    """The contracts that a curator who knows everything would choose."""

    knows = "everything"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return by_slices(environment, lambda some: first_best(environment.games(some=some)))


class Equilibrium(Direct):
    """The equilibrium of the protocol: what perfectly rational sides would sign."""

    knows = "everything"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return by_slices(environment, lambda some: equilibrium(environment.games(some=some)))
