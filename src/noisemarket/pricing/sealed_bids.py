"""Auctions by sealed bids: every owner says once for how much it sells down to the floor.

A bid is a payment level. An owner that sells for nothing bids the lowest; K + 1 says that it does
not sell. Whoever wins is paid a price that does not depend on its own bid, and wins with every bid
up to that price. So the bid that is best for it is the lowest level that pays for its sale,
whatever the others bid, and on the grid this holds exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.pricing.clock import floor_level
from noisemarket.pricing.lying import gained_by_bids
from noisemarket.pricing.mechanism import Agreement, Contracts, Direct, RunOptions

Award = Callable[[IntArray], Contracts]
"""Turns the bids of all owners into contracts."""


class SealedBids(Direct):
    """Asks every owner once, and buys down to the floor for the one model that all train."""

    knows = "nothing private: each owner names a price, best its own limit"
    joint = True
    questions = 1  # what it sells for; a posted price: whether it sells

    @abstractmethod
    def award(self, environment: Environment, options: RunOptions, saving: int) -> Award:
        """The rule by which bids for a saving level become contracts."""

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        floor_level(environment.levels, options.demand.floor)

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        saving = floor_level(environment.levels, options.demand.floor)
        return self.award(environment, options, saving)(limits(environment, saving))

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray | None:
        saving = floor_level(environment.levels, options.demand.floor)
        award = self.award(environment, options, saving)
        return gained_by_bids(environment.owner_side(), limits(environment, saving), award)


def limits(environment: Environment, saving: int) -> IntArray:
    """The lowest payment level for which each owner sells a saving; K + 1 where it does not."""
    return np.maximum(environment.owner_side().asks(slice(saving, saving + 1))[:, 0], 1)


def won_by(winners: IntArray, payments: IntArray, owners: int, saving: int) -> Contracts:
    """The contracts of winners, by their index, at these payment levels."""
    signed = np.zeros(owners, dtype=bool)
    signed[winners] = True
    payment = np.zeros(owners, np.int64)
    payment[winners] = payments
    return Contracts(np.where(signed, saving, 0), payment, signed)
