"""One price for all, posted by a curator that knows how costs are spread.

The curator does not know any owner's cost, but knows how many would sell at each price. It posts
the one at which the contracts are worth most. Each owner takes it or leaves it, so no answer is
better than the true one. Should more take it than the budget pays, those with most records sell.
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.game.protocol import Contracts
from noisemarket.game.value import JointValue
from noisemarket.pricing.asker import asker_of
from noisemarket.pricing.auctions import won_by
from noisemarket.pricing.clock import floor_level
from noisemarket.pricing.mechanism import Direct, RunOptions, affordable


class PostedPrice(Direct):
    """The best single price for a sale down to the floor; each owner takes it or leaves it."""

    knows = "how costs and data are spread among these owners"
    joint = True
    questions = 1  # whether it sells

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        floor_level(environment.levels, options.demand.floor)

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        saving = floor_level(environment.levels, options.demand.floor)
        shop = _Shop(environment, saving, options.demand.budget)
        price = shop.best_price(expected_limits(environment, saving))
        everybody = np.arange(len(environment))
        prices = np.full(len(environment), price)
        willing = asker_of(environment, options).stay(saving, everybody, prices)
        sold = shop.takers(willing, price)
        return won_by(sold, np.full(len(sold), price), len(environment), saving)


def expected_limits(environment: Environment, saving: int) -> IntArray:
    """The lowest price of each owner as the curator expects it, by how costs are spread.

    The curator's own forecast: owners are not asked.
    """
    return np.maximum(environment.owner_side().reserves(slice(saving, saving + 1))[:, 0], 1)


class _Shop:
    """The sales at a price, and what they are worth."""

    def __init__(self, environment: Environment, saving: int, budget: float | None) -> None:
        self._joint, self._budget = JointValue.of(environment), budget
        self._order = np.lexsort((environment.population.key, -self._joint.records))
        self._none, self._more = self._joint.sale(saving)

    def best_price(self, limit: IntArray) -> int:
        """The level at which sales are worth most over no trade; 0: none is worth anything."""
        levels = range(self._joint.levels.payment_levels + 1)
        return int(np.argmax([self._gain(limit, level) for level in levels]))

    def takers(self, willing: BoolArray, price: int) -> IntArray:
        """The owners that sell at a price, of the willing ones and within the budget."""
        if price == 0:
            return self._order[:0]
        sellers = self._order[willing[self._order]]
        amount = float(self._joint.levels.payments[price])
        return sellers[: affordable(self._budget, amount, len(sellers))]

    def _gain(self, limit: IntArray, price: int) -> float:
        sold = self.takers(limit <= price, price)
        sums: FloatArray = self._none + self._more[sold].sum(axis=0)
        quality = float(self._joint.quality(sums)) - float(self._joint.quality(self._none))
        paid = len(sold) * float(self._joint.levels.payments[price])
        return self._joint.quality_price * quality - self._joint.money_price * paid
