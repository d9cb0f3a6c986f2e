"""A descending clock auction: one floor, one price that falls, and owners that stay or leave.

The curator announces the noise that sellers keep (the floor) and a price, the highest payment. The
price falls level by level. An owner stays while the price pays for what it sells, and is out for
good once it says no. Each owner left when the clock stops sells down to the floor at the last price
at which it stayed. All that an owner can do about its price is to refuse it. So staying exactly
while it pays is best for it, whatever others do and whatever the rule of stopping is.

The stopping rule uses only public figures and the set of owners that are left.

- Budget: never before it covers the payments of all owners left.
- Value: as soon as an owner is worth its price, that is, if the least weighty of those left went
  away, quality would lose more than the price. If costs below the price are spread evenly, a step
  down by ``d`` from the price ``p`` saves ``d`` on each of ``n`` owners and loses ``n d / p`` of
  them: it pays exactly while an owner is worth less than ``p``.
- Target: instead of value, as soon as the target could be missed if one more owner left.

Owners are asked about a new price in lots, lightest first: only as many as would have to leave for
the clock to stop, or, with a target, as may leave without missing it. So a step on which many leave
does not go too far. Owners not yet asked when the clock stops keep the price before, one level
higher.

With ``Demand.scored`` prices differ by what owners of a size add to the model
(``FallingPrices``): the score is the square root of what quality would lose without one of them
if all others sold, over the most of any.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, Levels
from noisemarket.game.value import JointValue
from noisemarket.pricing.asker import asker_of
from noisemarket.pricing.mechanism import (
    Agreement,
    Demand,
    Mechanism,
    Progress,
    RunOptions,
    affordable,
    micro_down,
    micro_up,
)

LOTS, TARGET_LOTS = 8, 100
"""Lots in a step at most, where no target is to be kept and where one is."""

MOST_STEPS = 36
"""Prices that an owner is asked about at most: a finer grid is passed in larger steps. With its
key, the contract and the signature an owner has 40 messages before training at most."""

SCORED_STEPS = 100
"""Steps of a clock with scores. Only owners whose own price falls are asked at a step."""

LEAST_SCORE = 1.0 / 40.0
"""No score is lower, of 1 at the most: the steps would be too large."""


class Clock(Mechanism):
    """A price that falls: the owners left when it stops sell down to the same floor."""

    joint = True
    keeps_target = True

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        ClockAuction(environment, options.demand)

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        count = len(environment)
        auction = ClockAuction(environment, options.demand)
        asker, nobody = asker_of(environment, options), Contracts.same(0, 0, 0)
        while not auction.over:
            if options.stop():
                return Agreement(Contracts.same(count, 0, 0), np.zeros(count, dtype=bool))
            auction.hear(asker.stay(auction.saving, auction.asked, auction.prices))
            fallen = 1.0 - auction.price / environment.levels.payment_levels
            options.watch(Progress(slice(0, 0), nobody, int(fallen * count), count))
        contracts = auction.contracts()
        options.watch(Progress(slice(0, count), contracts, count, count))
        return Agreement(contracts, np.ones(count, dtype=bool), messages=auction.answers / count)


class ClockAuction:
    """The curator's side, in an environment's last phase: it holds nothing private of any owner.

    Ask the owners in ``asked`` whether they stay at ``prices`` for ``saving`` (level numbers),
    ``hear`` their answers, and go on until it is ``over``.
    """

    def __init__(self, environment: Environment, demand: Demand) -> None:
        joint, keys = JointValue.of(environment), environment.population.key
        self._joint, self._demand = joint, demand
        self.saving = floor_level(joint.levels, demand.floor)
        self._step = 0
        self._standing = 0  # the step whose prices the waiting owners have accepted
        self._order = np.lexsort((keys, joint.records))  # lightest first
        self._sellers = Sellers(joint, self.saving)
        scores = np.sqrt(self._sellers.added()) if demand.scored else np.ones(self._sellers.sizes)
        highest, keep_all = joint.levels.payment_levels, demand.target is not None
        self._prices = FallingPrices(highest, scores, keep_all=keep_all)
        self._level: IntArray = np.zeros(len(joint), dtype=np.int64)  # the last that was accepted
        self._drop()
        self._waiting = self._order[self.active[self._order]]  # not yet asked about this price
        self.asked: IntArray = self._waiting
        self.answers, self.over = 0, False
        self._check_target()

    @property
    def price(self) -> int:
        """The highest payment level that anybody is asked about now."""
        return int(self._prices.at(self._step).max())

    @property
    def prices(self) -> IntArray:
        """The payment level that each of the asked is asked about."""
        return self._offered()[self.asked]

    @property
    def active(self) -> BoolArray:
        return self._sellers.active

    def hear(self, stay: BoolArray) -> None:
        """Take the answers to this price, and choose the next owners to ask, or stop."""
        self.answers += len(stay)
        self._level[self.asked[stay]] = self.prices[stay]
        self._sellers.leave(self.asked[~stay])
        self._waiting = self._waiting[len(self.asked) :]
        if self._step == 0:
            self._check_target()
            if self._needs_none():
                self._sellers.leave(np.flatnonzero(self.active))
        while not self.over and not len(self._waiting):
            self._fall()
        if not self.over:
            lot = self._lot()
            self.over, self.asked = lot == 0, self._waiting[:lot]
        if self.over and self._demand.target is None and not self._pays():
            self._sellers.leave(np.flatnonzero(self.active))

    def contracts(self) -> Contracts:
        """The floor for all owners left, each at the last price that it accepted."""
        saving = np.where(self.active, self.saving, 0)
        return Contracts(saving, np.where(self.active, self._level, 0), self.active.copy())

    def _offered(self) -> IntArray:
        """The payment level of each owner at this step; 0: no offer."""
        return self._prices.at(self._step)[self._sellers.size_of]

    def _drop(self) -> None:
        """Owners that are worth less than the lowest payment have to leave."""
        self._sellers.leave(np.flatnonzero(self.active & (self._offered() == 0)))

    def _fall(self) -> None:
        """One price lower for all owners left; at the lowest, as many as are paid and needed."""
        self._waiting, self._standing = self._order[self.active[self._order]], self._step
        if not len(self._waiting) or self._lot() == 0:
            self.over = True
        elif self._step == len(self._prices) - 1:
            self._sellers.leave(self._waiting[: len(self._waiting) - self._most()])
            self.over = True
        else:
            self._step += 1
            self._drop()
            lower = self.active & (self._offered() < self._level)
            self._waiting = self._order[lower[self._order]]

    def _most(self) -> int:
        """How many of the heaviest are paid by the budget, and needed for the target."""
        needed = self._sellers.count - self._not_needed()
        if self._demand.budget is None:
            return needed
        levels, kind = np.unique(self._level[self._waiting[::-1]], return_inverse=True)
        amounts = np.array([micro_up(self._payment(level)) for level in levels], dtype=object)
        room = micro_down(self._demand.budget)
        return min(needed, int((np.cumsum(amounts[kind]) <= room).sum()))

    def _needs_none(self) -> bool:
        """Whether even the lowest price is too high, or the target is met without any seller."""
        target, lowest = self._demand.target, self._payment(self._prices.lowest)
        met = target is not None and self._sellers.spare(target) == self._sellers.count
        return met or affordable(self._demand.budget, lowest, 1) == 0

    # The rules of stopping

    def _lot(self) -> int:
        """How many of the waiting owners to ask next; 0: the clock stops."""
        leave = max(self._over_budget(), self._not_needed())
        lots = LOTS if self._demand.target is None else TARGET_LOTS
        few = math.ceil(self._sellers.count / lots)
        return 0 if leave == 0 else min(max(leave, few), len(self._waiting))

    def _not_needed(self) -> int:
        """How many are not worth what they have accepted or, with a target, may leave."""
        if self._demand.target is not None:
            return self._sellers.spare(self._demand.target)
        prices = self._joint.levels.payments[self._prices.at(self._standing)]
        return self._sellers.not_worth(prices)

    def _over_budget(self) -> int:
        """How many waiting owners must leave at least for the budget to pay the rest."""
        if self._demand.budget is None:
            return 0
        levels, counts = np.unique(self._level[self.active], return_counts=True)
        prices = [micro_up(self._payment(level)) for level in levels]
        cost = sum(price * int(count) for price, count in zip(prices, counts, strict=True))
        excess = cost - micro_down(self._demand.budget)
        dearest = self._payment(int(self._level[self._waiting].max()))
        return max(0, -(-excess // micro_up(dearest)))

    def _pays(self) -> bool:
        """Whether what is left is worth its money, over no trade."""
        money = math.fsum(self._joint.levels.payments[self._level[self.active]])
        return self._sellers.worth() >= self._joint.money_price * money

    def _check_target(self) -> None:
        target = self._demand.target
        if target is None or (best := self._sellers.quality()) >= target:
            return
        floor = self._joint.levels.sigma_left(self.saving)
        count = self._sellers.count
        money = math.fsum(self._joint.levels.payments[self._offered()[self.active]])
        many = f"at most {best:.2f} % with noise {floor:g}, for up to {money:g}"
        who = f"the {count} owners that would sell bring"
        if count == 1:
            who = "the one owner that would sell brings"
        if count == len(self.active):
            who = "all owners bring"
        remedy = f"is out of reach, {who} {many}: give less, or lower market.floor."
        raise BadInput("market.target_accuracy", target, remedy)

    def _payment(self, level: int) -> float:
        return float(self._joint.levels.payments[level])


def floor_level(levels: Levels, floor: float) -> int:
    """The saving level nearest to a floor, of those that leave some noise; the last for floor 0."""
    if floor >= levels.sigma_max:
        remedy = f"sellers keep less than sigma_max: give a number below {levels.sigma_max:g}."
        raise BadInput("market.floor", floor, remedy)
    steps = levels.saving_levels
    if floor > 0.0 and steps == 1:
        remedy = "the only level gives up all noise: give at least 2, or market.floor = 0."
        raise BadInput("game.saving_levels", steps, remedy)
    nearest = round((levels.sigma_max - floor) * steps / levels.sigma_max)
    most = steps if floor == 0.0 else steps - 1
    return min(max(1, nearest), most)


class Sellers:
    """The owners that would still sell down to a level, and what that is worth, by public figures.

    Owners of one size weigh alike. So all sums are taken over sizes, and depend neither on the
    order of the owners nor, where all have one size, on their number.
    """

    def __init__(self, joint: JointValue, saving: int) -> None:
        self._joint = joint
        sizes, self.size_of = np.unique(joint.records, return_inverse=True)
        self._in = joint.terms(saving, sizes)
        self._out = joint.terms(0, sizes)
        self._all = self._left = np.bincount(self.size_of, minlength=len(sizes))
        self.active: BoolArray = np.ones(len(joint), dtype=bool)
        self._known: dict[bytes, float] = {}  # most steps ask about the same owners again

    @property
    def count(self) -> int:
        return int(self._left.sum())

    @property
    def sizes(self) -> int:
        return len(self._all)

    def added(self) -> FloatArray:
        """What an owner of each size adds to the quality if all others sell, over the most."""
        every, one = self._sums(self._all), self._in - self._out
        added = np.maximum(self._joint.quality(every) - self._joint.quality(every - one), 0.0)
        most = float(added.max())
        return added / most if most > 0.0 else np.ones(len(added))

    def leave(self, owners: IntArray) -> None:
        self.active[owners] = False
        self._left = self._left - np.bincount(self.size_of[owners], minlength=len(self._all))

    def quality(self) -> float:
        return self._quality(self._left)

    def worth(self) -> float:
        """The quality that they bring over no trade, as the curator values it."""
        return self._joint.quality_price * (self.quality() - self._quality(0 * self._left))

    def not_worth(self, prices: FloatArray) -> int:
        """How many of the lightest would have to leave for the lightest of the rest to be worth
        what owners of its size are paid; all of them if none ever is."""

        def worth_it(gone: int) -> bool:
            rest = _without_lightest(self._left, gone)
            last = self._quality(rest) - self._quality(_without_lightest(rest, 1))
            price = float(prices[int(np.argmax(rest > 0))])
            return self._joint.quality_price * last >= self._joint.money_price * price

        if self.count and worth_it(0):  # fewer sellers need not be worth more: few know little
            return 0
        return _least(worth_it, self.count)

    def spare(self, target: float) -> int:
        """How many owners may leave, in any order, with the quality still at a target."""

        def missed(gone: int) -> bool:
            rest = _without_lightest(self._left[::-1], gone)[::-1]
            return self._quality(rest) < target

        if not missed(self.count):
            return self.count
        return max(0, _least(missed, self.count) - 1)

    def _quality(self, left: IntArray) -> float:
        counts = left.tobytes()
        if counts not in self._known:
            self._known[counts] = float(self._joint.quality(self._sums(left)))
        return self._known[counts]

    def _sums(self, left: IntArray) -> FloatArray:
        parts = left[:, None] * self._in + (self._all - left)[:, None] * self._out
        return np.asarray(parts.sum(axis=0))


def _least(holds: Callable[[int], bool], most: int) -> int:
    """The least number from 0 to ``most`` for which something holds that holds for all above it;
    ``most`` if it holds for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _without_lightest(left: IntArray, count: int) -> IntArray:
    """So many of the lightest owners fewer, the sizes in ascending order."""
    lighter = np.cumsum(left) - left
    return np.asarray(left - np.minimum(np.maximum(count - lighter, 0), left))


def price_levels(payment_levels: int) -> list[int]:
    """The payment levels that the clock passes, highest first; none is 0."""
    stride = math.ceil(payment_levels / MOST_STEPS)
    return list(range(payment_levels, 0, -stride))


class FallingPrices:
    """What owners of each size are asked about at each step: payment levels that never rise.

    All begin at the highest payment, and the offers of owners that add less to the model fall
    faster. Scores, from 0 to 1, follow from public figures and are fixed before the first price, so
    no answer changes them. With ``keep_all`` owners whose score is too low for the lowest price are
    still offered that, rather than nothing.
    """

    def __init__(self, payment_levels: int, scores: FloatArray, *, keep_all: bool) -> None:
        self._levels = np.array(price_levels(payment_levels)[::-1])
        self._scores, self._keep_all = np.maximum(scores, LEAST_SCORE), keep_all
        lowest, highest = self._levels[0], self._levels[-1]
        self._falling = self._levels[::-1].astype(float)
        if np.ptp(self._scores) > 0.0:
            self._falling = np.geomspace(highest / self._scores.min(), lowest, SCORED_STEPS)
        else:
            self._scores = np.ones(len(scores))

    def __len__(self) -> int:
        return len(self._falling)

    @property
    def lowest(self) -> int:
        return int(self._levels[0])

    def at(self, step: int) -> IntArray:
        """The offer to owners of each size; 0: none any more."""
        offered = np.searchsorted(self._levels, self._scores * self._falling[step] + 1e-9, "right")
        if self._keep_all:
            offered = np.maximum(offered, 1)
        return np.where(offered > 0, self._levels[offered - 1], 0)
