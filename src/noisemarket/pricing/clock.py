"""A descending clock auction: one floor, one price that falls, and owners who stay or leave.

The curator announces the noise that sellers keep (the floor) and a price, the highest payment. The
price falls level by level. An owner stays while the price pays for what it sells, and is out for
good once it says no. Whoever is left when the clock stops sells down to the floor at the last price
at which it stayed. All that an owner can do about its price is to refuse it. So staying exactly
while it pays is best for it, whatever others do and whatever the rule of stopping is.

The clock stops by what the curator may know: public figures, and who is still there.

- Budget: never before what all who are left cost fits it.
- Value: as soon as an owner is worth its price, that is, if the least weighty of those left went
  away, quality would lose more than the price. If costs below the price are spread evenly, a step
  down by ``d`` from the price ``p`` saves ``d`` on each of ``n`` owners and loses ``n d / p`` of
  them: it pays exactly while an owner is worth less than ``p``.
- Target: instead of value, as soon as the target could be missed if one more owner left.

Owners are asked about a new price in lots, lightest first: only as many as would have to leave for
the clock to stop, or, with a target, as may leave without missing it. So a step on which many leave
does not go too far. Whoever was not yet asked when the clock stops keeps the price before, one
level higher.

With ``Demand.scored`` prices differ by what owners of a size add to the model
(``FallingPrices``): the score is the square root of what quality would lose without one of them
if all others sold, over the most of any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray, Levels
from noisemarket.pricing.budget import affordable, micro_down, micro_up
from noisemarket.pricing.joint import JointValue
from noisemarket.pricing.lying import gained_over
from noisemarket.pricing.mechanism import (
    Agreement,
    Contracts,
    Demand,
    Mechanism,
    Progress,
    RunOptions,
    same_for_all,
)
from noisemarket.pricing.sellers import FallingPrices, Sellers

LOTS, TARGET_LOTS = 8, 100
"""Lots in a step at most, where no target is to be kept and where one is."""


class Clock(Mechanism):
    """A price that falls for all: who stays until it stops sells down to the same floor."""

    joint = True
    keeps_target = True

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        ClockAuction.of(environment, options.demand)

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        count = len(environment)
        auction = ClockAuction.of(environment, options.demand)
        for _ in played(auction, environment):
            if options.stop():
                return Agreement(same_for_all(count, 0, 0), np.zeros(count, dtype=bool))
        contracts = auction.contracts()
        options.watch(Progress(slice(0, count), contracts, count, count))
        return Agreement(contracts, np.ones(count, dtype=bool), messages=auction.answers / count)

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray | None:
        """Exact: all that an owner can do is to leave at a price of its own choice.

        Leaving brings 0. Until an owner leaves, everything goes as if it never left. So another
        answer than its own could pay only after the price that it refused, where no price is
        higher: only if that one would pay is the clock run with an owner that never leaves.
        """
        side, refused = environment.owner_side(), np.zeros(len(environment), np.int64)
        auction = ClockAuction.of(environment, options.demand)
        stays = cache(partial(side.accepts, auction.saving))
        while not auction.over:
            stay = truthful(auction, stays)
            refused[auction.asked[~stay]] = auction.prices[~stay]
            auction.hear(stay)
        sold = np.full(len(environment), auction.saving)
        hope = np.where(refused > 0, side.surplus(sold, refused), 0.0)
        best = np.maximum(side.surplus(auction.contracts().saving, auction.contracts().payment), 0)
        for owner in np.flatnonzero(hope > 0.0):
            auction = ClockAuction.of(environment, options.demand)
            try:
                while not auction.over:
                    auction.hear(truthful(auction, stays) | (auction.asked == owner))
            except BadInput:  # it misses a target: no trade
                best[owner] = 0.0
                continue
            stayed = auction.contracts()
            best[owner] = max(0.0, side.surplus(stayed.saving, stayed.payment)[owner])
        return gained_over(side, agreement.contracts, best)


def played(auction: ClockAuction, environment: Environment) -> Iterator[float]:
    """Play an auction with the owners of an environment; gives the price of each question."""
    stays = cache(partial(environment.owner_side().accepts, auction.saving))
    while not auction.over:
        price = auction.price
        auction.hear(truthful(auction, stays))
        yield float(environment.levels.payments[price])


def truthful(auction: ClockAuction, stays: Callable[[int], BoolArray]) -> BoolArray:
    """Who of the asked stays; ``stays`` is what all owners answer to one price."""
    asked, prices = auction.asked, auction.prices
    answers = np.zeros(len(asked), dtype=bool)
    for price in np.unique(prices).tolist():
        these = prices == price
        answers[these] = stays(price)[asked[these]]
    return answers


class ClockAuction:
    """The curator's side: it holds nothing private of any owner.

    Ask the owners in ``asked`` whether they stay at ``prices`` for ``saving`` (level numbers),
    ``hear`` their answers, and go on until it is ``over``.

    Args:
        joint: what contracts are worth together.
        keys: an order of the owners that does not depend on how they are listed.
        demand: floor, budget and target.
    """

    def __init__(self, joint: JointValue, keys: KeyArray, demand: Demand) -> None:
        self._joint, self._demand = joint, demand
        self.saving = floor_level(joint.levels, demand.floor)
        self._step = 0
        self._standing = 0  # the step whose prices those who wait have accepted
        self._order = np.lexsort((keys, joint.records))  # lightest first
        self._sellers = Sellers(joint, self.saving)
        scores = np.sqrt(self._sellers.added()) if demand.scored else np.ones(self._sellers.sizes)
        self._prices = FallingPrices(
            joint.levels.payment_levels, scores, keep_all=demand.target is not None
        )
        self._level: IntArray = np.zeros(len(joint), dtype=np.int64)  # the last that was accepted
        self._drop()
        self._waiting = self._order[self.active[self._order]]  # not yet asked about this price
        self.asked: IntArray = self._waiting
        self.answers, self.over = 0, False
        self._check_target()

    @classmethod
    def of(cls, environment: Environment, demand: Demand) -> ClockAuction:
        """The auction of an environment's last phase."""
        return cls(JointValue.of(environment), environment.population.key, demand)

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
        """Who has not left."""
        return self._sellers.active

    def hear(self, stay: BoolArray) -> None:
        """Take in who of the asked stays at this price, and decide whom to ask next, or to stop."""
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
        """The floor for all who are left, each at the last price that it accepted."""
        saving = np.where(self.active, self.saving, 0)
        return Contracts(saving, np.where(self.active, self._level, 0), self.active.copy())

    def _offered(self) -> IntArray:
        """The payment level of each owner at this step; 0 for those who are offered nothing."""
        return self._prices.at(self._step)[self._sellers.size_of]

    def _drop(self) -> None:
        """Who is worth less than the lowest payment has to leave."""
        self._sellers.leave(np.flatnonzero(self.active & (self._offered() == 0)))

    def _fall(self) -> None:
        """One price lower, for all who are left; at the lowest, as many as are paid and needed."""
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
        """How many to ask next of those who wait; 0: the clock stops."""
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
        """How many of those who wait must leave at least for the budget to pay the rest."""
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
        who = "all owners" if count == len(self.active) else f"the {count} owners who would sell"
        remedy = f"is out of reach, {who} bring {many}: give less, or lower market.floor."
        raise BadInput("market.target_accuracy", target, remedy)

    def _payment(self, level: int) -> float:
        return float(self._joint.levels.payments[level])


def floor_level(levels: Levels, floor: float) -> int:
    """The saving level nearest to a floor, of those that leave some noise; all noise for floor 0.

    Raises:
        BadInput: whoever keeps that much noise sells nothing.
    """
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
