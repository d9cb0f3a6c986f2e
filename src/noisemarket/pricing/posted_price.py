"""One price for all, posted by a curator that knows how costs are spread.

The curator does not know who has which cost, but knows how many would sell at each price. It posts
the one at which the contracts are worth most. Each owner takes it or leaves it, so no answer is
better than the true one. Should more take it than the budget pays, those with most records sell.
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.pricing.budget import affordable
from noisemarket.pricing.joint import JointValue
from noisemarket.pricing.mechanism import Contracts, RunOptions
from noisemarket.pricing.sealed_bids import Award, SealedBids, won_by


class PostedPrice(SealedBids):
    """The best single price for a sale down to the floor; each owner takes it or leaves it."""

    knows = "how costs and data are spread among these owners"

    def award(self, environment: Environment, options: RunOptions, saving: int) -> Award:
        shop = _Shop(environment, saving, options.demand.budget)
        known = environment.owner_side().reserves(slice(saving, saving + 1))[:, 0]
        price = shop.best_price(np.maximum(known, 1))

        def take(bids: IntArray) -> Contracts:
            sold = shop.takers(bids, price)
            return won_by(sold, np.full(len(sold), price), len(bids), saving)

        return take


class _Shop:
    """Who buys at a price, and what that is worth."""

    def __init__(self, environment: Environment, saving: int, budget: float | None) -> None:
        self._joint, self._budget = JointValue.of(environment), budget
        self._order = np.lexsort((environment.population.key, -self._joint.records))
        self._none, self._more = self._joint.sale(saving)

    def best_price(self, limit: IntArray) -> int:
        """The level at which sales are worth most over no trade; 0: none is worth anything."""
        levels = range(self._joint.levels.payment_levels + 1)
        return int(np.argmax([self._gain(limit, level) for level in levels]))

    def takers(self, limit: IntArray, price: int) -> IntArray:
        """Who sells at a price, by these limits and within the budget."""
        if price == 0:
            return self._order[:0]
        willing = self._order[limit[self._order] <= price]
        amount = float(self._joint.levels.payments[price])
        return willing[: affordable(self._budget, amount, len(willing))]

    def _gain(self, limit: IntArray, price: int) -> float:
        sold = self.takers(limit, price)
        sums: FloatArray = self._none + self._more[sold].sum(axis=0)
        quality = float(self._joint.quality(sums)) - float(self._joint.quality(self._none))
        paid = len(sold) * float(self._joint.levels.payments[price])
        return self._joint.quality_price * quality - self._joint.money_price * paid
