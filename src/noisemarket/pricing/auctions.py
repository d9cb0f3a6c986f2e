"""Sales down to the floor by one question: auctions by sealed bids, and one posted price.

A bid is a payment level. An owner that sells for nothing bids the lowest; K + 1 says that it does
not sell. A winner is paid a price that does not depend on its own bid, and wins with every bid up
to that price. So the bid that is best for it is the lowest level that pays for its sale, whatever
the others bid, and on the grid this holds exactly.

The rule of both auctions is proportional share. Owners are ranked by their bid per score. Of all
beginnings of that list the longest wins whose last owner bids no more than its share of the money,
``money x score / sum of scores``. Each winner is paid the highest bid with which it would still
have won: its share, or the bid with which the first loser would have gone before it, whichever is
lower. So nothing is gained by another bid, nobody loses, and all payments together are within the
money.

The money is the budget, but never more than what the winners are worth to the curator, and a share
is never more than what the lightest of them adds. That depends on the set of winners, not on their
bids.

A curator that knows how costs are spread, though not any owner's, can post one price instead: the
one at which the contracts are worth most. Each owner takes it or leaves it, so no answer is better
than the true one. Should more take it than the budget pays, those with most records sell.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray
from noisemarket.game.value import JointValue
from noisemarket.pricing.asker import asker_of
from noisemarket.pricing.clock import floor_level
from noisemarket.pricing.mechanism import (
    MICRO,
    Direct,
    RunOptions,
    affordable,
    micro_down,
    micro_up,
)

_ROUNDING = 1e-12  # relative: what shares of unequal scores may add up to above the money
_NO_LIMIT = 1e40  # micro-units, where money counts for nothing


class FloorSale(Direct):
    """Asks every owner once, and buys down to the floor for the one model that all train."""

    joint = True
    questions = 1

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        floor_level(environment.levels, options.demand.floor)


class SealedBids(FloorSale):
    """Asks every owner for how much it sells."""

    knows = "nothing private: each owner names a price, best its own limit"

    @abstractmethod
    def scores(self, joint: JointValue, saving: int) -> FloatArray:
        """What each owner counts for if it sells a saving, by public figures."""

    def award(
        self, environment: Environment, options: RunOptions, saving: int
    ) -> ProportionalShare:
        """The rule by which bids for a saving level become contracts."""
        joint, keys = JointValue.of(environment), environment.population.key
        scores = self.scores(joint, saving)
        return ProportionalShare(joint, keys, saving, scores, options.demand.budget)

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        saving = floor_level(environment.levels, options.demand.floor)
        bids = asker_of(environment, options).bid(saving)
        return self.award(environment, options, saving)(bids)


def won_by(winners: IntArray, payments: IntArray, owners: int, saving: int) -> Contracts:
    """The contracts of winners, by their index, at these payment levels."""
    signed = np.zeros(owners, dtype=bool)
    signed[winners] = True
    payment = np.zeros(owners, np.int64)
    payment[winners] = payments
    return Contracts(np.where(signed, saving, 0), payment, signed)


@dataclass(frozen=True, eq=False)
class ProportionalShare:
    """The rule for one saving.

    ``keys`` give an order of the owners that does not depend on how they are listed. ``scores``,
    above 0, say what each owner counts for; equal ones are 1. Without a ``budget`` there is no
    limit but what winners are worth.
    """

    joint: JointValue
    keys: KeyArray
    saving: int
    scores: FloatArray
    budget: float | None

    def __call__(self, bids: IntArray) -> Contracts:
        asked = bids / self.scores
        order = np.lexsort((self.keys, asked))
        order = order[bids[order] <= self.joint.levels.payment_levels]
        unit = self._unit_money(order)
        enough = bids[order] <= self._levels(self.scores[order] * unit)
        if not enough.any():
            return won_by(order[:0], bids[:0], len(bids), self.saving)
        last = int(np.flatnonzero(enough)[-1])
        winners, following = order[: last + 1], order[last + 1 : last + 2]
        paid = self._levels(self.scores[winners] * unit[last])
        if len(following):
            paid = np.minimum(paid, self._before(winners, int(following[0]), asked))
        return won_by(winners, paid, len(bids), self.saving)

    def _unit_money(self, order: IntArray) -> FloatArray:
        """The most that a unit of score may cost, for every beginning of a ranking."""
        total = np.cumsum(self.scores[order])
        worth, least = self._worth(order)
        lightest = np.minimum.accumulate(self.scores[order])
        room = np.minimum(worth / total, least / lightest)
        if self.budget is not None:
            room = np.minimum(room, micro_down(self.budget) / total)
        uneven = bool(np.any(self.scores != 1.0))
        return room * (1.0 - _ROUNDING) if uneven else room

    def _worth(self, order: IntArray) -> tuple[FloatArray, FloatArray]:
        """What each beginning is worth, and what its lightest owner adds to that, in micro-units of
        money."""
        joint, (none, more) = self.joint, self._sums
        change = more[order]
        sums = none + np.cumsum(change, axis=0)
        lightest = np.minimum.accumulate(joint.records[order])
        first = np.maximum.accumulate(
            np.where(np.diff(lightest, prepend=lightest[:1] + 1) < 0, np.arange(len(order)), 0)
        )
        reached = joint.quality(sums)
        rest = joint.quality(sums - change[first])
        return self._money(reached - joint.quality(none)), self._money(reached - rest)

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        return self.joint.sale(self.saving)

    def _money(self, quality: FloatArray) -> FloatArray:
        """What an amount of quality is worth in micro-units of money."""
        if self.joint.money_price == 0.0:
            return np.where(self.joint.quality_price * quality > 0.0, _NO_LIMIT, 0.0)
        return np.asarray(self.joint.quality_price * quality * MICRO / self.joint.money_price)

    def _levels(self, money: FloatArray) -> IntArray:
        """The highest payment level within an amount of micro-units; 0 where there is none."""
        return np.maximum(np.searchsorted(self._prices, money, side="right") - 1, 0)

    @cached_property
    def _prices(self) -> FloatArray:
        prices = [micro_up(float(payment)) for payment in self.joint.levels.payments]
        return np.array(prices, dtype=float)

    def _before(self, winners: IntArray, loser: int, asked: FloatArray) -> IntArray:
        """The highest bid with which each winner still stands before the first loser."""
        scores, keys = self.scores[winners], self.keys
        bid = np.floor(asked[loser] * scores) + 1.0
        for _ in range(2):  # rounding may have put it one too high
            same = bid / scores == asked[loser]
            ahead = (bid / scores < asked[loser]) | (same & (keys[winners] < keys[loser]))
            bid = np.where(ahead, bid, bid - 1.0)
        return np.asarray(bid, dtype=np.int64)


class PACAuction(SealedBids):
    """The cheapest owners by sealed bids, as many as equal shares of the budget pay.

    A budget-feasible auction of privacy, in the style of Ghosh and Roth (2011). There, each of
    ``k`` sellers out of ``n`` sells epsilon ``1 / (n - k)``, which costs an owner of unit cost
    ``v`` the amount ``v / (n - k)``. With owners in the order of their costs, the largest ``k``
    with ``v_k / (n - k) <= B / k`` sell, and each is paid ``min(B / k, v_{k+1} / (n - k))``. Here
    every seller sells the same, down to the floor, however many they are. What that costs an owner
    is its limit, and takes the place of ``v / (n - k)``.
    """

    def scores(self, joint: JointValue, saving: int) -> FloatArray:
        return np.ones(len(joint))


class CSRAAuction(SealedBids):
    """The owners with most quality for their price by sealed bids, each paid its critical bid.

    In the style of CSRA (Yang et al. 2024). What a sale adds to the model is public: by how much
    the weight of the owner's update in the noise-aware mean grows when it keeps the floor instead
    of all its noise. Owners with more data weigh more.
    """

    def scores(self, joint: JointValue, saving: int) -> FloatArray:
        more = joint.moments(joint.sale(saving)[1])[:, 0]
        return np.asarray(more / more.max())


class PostedPrice(FloorSale):
    """The best single price for a sale down to the floor; each owner takes it or leaves it."""

    knows = "how costs and data are spread among these owners"

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        levels, budget = environment.levels, options.demand.budget
        saving, joint = floor_level(levels, options.demand.floor), JointValue.of(environment)
        order = np.lexsort((environment.population.key, -joint.records))
        none, more = joint.sale(saving)

        def takers(willing: BoolArray, price: int) -> IntArray:
            """The owners that sell at a price, of the willing ones and within the budget."""
            sellers = order[willing[order]] if price else order[:0]
            return sellers[: affordable(budget, float(levels.payments[price]), len(sellers))]

        def gain(price: int) -> float:
            sold = takers(limits <= price, price)
            sums: FloatArray = none + more[sold].sum(axis=0)
            quality = float(joint.quality(sums)) - float(joint.quality(none))
            paid = len(sold) * float(levels.payments[price])
            return joint.quality_price * quality - joint.money_price * paid

        # The curator's own forecast, by how costs are spread: owners are not asked.
        reserves = environment.owner_side().reserves(slice(saving, saving + 1))[:, 0]
        limits = np.maximum(reserves, 1)
        price = int(np.argmax([gain(level) for level in range(levels.payment_levels + 1)]))
        everybody = np.arange(len(environment))
        prices = np.full(len(environment), price)
        willing = asker_of(environment, options).stay(saving, everybody, prices)
        sold = takers(willing, price)
        return won_by(sold, np.full(len(sold), price), len(environment), saving)
