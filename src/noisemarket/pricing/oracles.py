"""Mechanisms that ask nobody: exact answers, and the two ends between which all others lie.

The best portfolio is what a curator of one model would buy if it knew every owner's reserve.

Each seller is paid exactly its reserve, rounded up to the payment grid, and may sell any saving
down to the floor. It is the upper bound that ``clock`` is measured by.

Quality depends on the contracts through three sums over owners (``game/value.py``), so no owner can
be judged alone. Two steps, which together come within some per mille of the best:

1. *Greedy*: where the sums are now, what each contract adds to the mean's exactness is linear in
   them. Take steps up in saving by exactness per money, keep the best beginning of that list, and
   do it again from there.
2. *Single changes*: give any one owner any other contract while that helps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment, Games
from noisemarket.game.equilibrium import CheapestDeals, equilibrium, first_best
from noisemarket.game.levels import FloatArray, IntArray, KeyArray
from noisemarket.game.value import JointValue
from noisemarket.pricing.clock import floor_level
from noisemarket.pricing.mechanism import Demand, Direct, RunOptions, affordable

_ROUNDS, _CHANGES = 6, 40


class Oracle(Direct):
    """An exact answer, owner by owner, from all preferences of both sides.

    ``solve`` answers games; ``choose`` the same for signed ones, among the cheapest deals.
    """

    knows = "everything"

    def __init__(
        self,
        solve: Callable[[Games], Contracts],
        choose: Callable[[CheapestDeals], Contracts],
    ) -> None:
        self.solve, self._choose = solve, choose

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        def solve(some: slice) -> Contracts:
            if environment.protocol == "signed" and environment.behaviour.exact:
                sides = environment.owner_side(some=some), environment.curator_side(some=some)
                return self._choose(CheapestDeals.between(*sides))  # no tables: many times faster
            return self.solve(environment.games(some=some))

        return Contracts.joined([solve(some) for some in environment.slices()])


FIRST_BEST = Oracle(first_best, CheapestDeals.best_for_curator)
"""The contracts that a curator with full knowledge would choose."""

EQUILIBRIUM = Oracle(equilibrium, CheapestDeals.best_for_owner)
"""The equilibrium of the protocol: what perfectly rational sides would sign."""


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


class BestPortfolio(Direct):
    """What a curator of one model would buy if it knew what each owner sells for."""

    knows = "everything"
    joint = True
    keeps_target = True

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return best_portfolio(environment, options.demand)


def best_portfolio(environment: Environment, demand: Demand) -> Contracts:
    """The best contracts under a demand: nobody sells below its floor, but some may keep more.

    A budget that does not pay for the target holds, and the target is missed.
    """
    market = _ForSale(environment, demand)
    starts = [market.greedy(most) for most in range(1, environment.levels.saving_levels + 1)]
    best = max(starts, key=market.score_of)
    saving = max(map(market.changed, (best, starts[-1])), key=market.score_of)
    if market.score_of(saving) == -np.inf and demand.budget is not None:
        return best_portfolio(environment, replace(demand, target=None))
    if market.score_of(saving) == -np.inf:
        remedy = f"is out of reach: all that is for sale brings {market.all_of_it()}; give less."
        raise BadInput("market.target_accuracy", demand.target, remedy)
    payment = market.reserves[np.arange(len(saving)), saving]
    return Contracts(saving, payment, (saving > 0) | (payment > 0))


class _ForSale:
    """All that is for sale. A portfolio is an array of saving levels, one for each owner."""

    def __init__(self, environment: Environment, demand: Demand) -> None:
        self.joint, self._target = JointValue.of(environment), demand.target
        levels, owners = environment.levels, len(environment)
        parts = [environment.owner_side(-1, some).reserves() for some in environment.slices()]
        self.reserves: IntArray = np.concatenate(parts)
        self.reserves[:, 0] = 0  # no sale, no payment
        self._keys = environment.population.key
        self._for_sale = self.reserves <= levels.payment_levels
        self._for_sale[:, floor_level(levels, demand.floor) + 1 :] = False
        self._unit = float(levels.payments[1])
        self.room = affordable(demand.budget, self._unit, owners * levels.payment_levels)
        every = np.arange(len(levels.sigmas))
        self._terms = self.joint.terms(every, self.joint.records[:, None])
        self._rows = np.arange(owners)

    def all_of_it(self) -> str:
        """What the largest savings that owners sell at all bring and cost, in words."""
        most = self._for_sale.shape[1] - 1 - np.argmax(self._for_sale[:, ::-1], axis=1)
        money = self._unit * float(self.reserves[self._rows, most].sum())
        return f"{float(self.quality(most)):.2f} % for {money:g}"

    def quality(self, portfolio: IntArray) -> FloatArray:
        return self.joint.quality(self._sums(portfolio))

    def score_of(self, portfolio: IntArray) -> float:
        """Objective; -inf if infeasible."""
        paid = np.asarray(self.reserves[self._rows, portfolio].sum())
        return float(self._score(self.quality(portfolio), paid))

    def _score(self, quality: FloatArray, paid: IntArray) -> FloatArray:
        money = self.joint.money_price * self._unit * paid
        if self._target is None:
            worth = self.joint.quality_price * quality - money
        else:
            worth = np.where(quality >= self._target, -self._unit * paid, -np.inf)
        return np.where(paid <= self.room, worth, -np.inf)

    def _sums(self, portfolio: IntArray) -> FloatArray:
        return np.asarray(self._terms[self._rows, portfolio].sum(axis=0))

    # Greedy, and single changes

    def greedy(self, most: int) -> IntArray:
        """The best beginning of a list of steps by exactness per money, found again from there.

        Nobody sells beyond the level ``most``: many small sellers know more than a few large ones,
        which exactness does not count.
        """
        best = now = np.zeros(len(self._rows), dtype=np.int64)
        sale = np.where(self._for_sale, self.reserves, np.inf)
        sale[:, most + 1 :] = np.inf
        for _ in range(_ROUNDS):
            now = self._beginning(_steps_by_worth(self._exactness(now), sale, self._keys))
            if self.score_of(now) <= self.score_of(best):
                break
            best = now
        return best

    def _exactness(self, portfolio: IntArray) -> FloatArray:
        """What each contract adds to W^2 / C, the exactness of the mean, to first order."""
        weight, noise = self._variance(self._sums(portfolio))
        own_weight, own_noise = self._variance(self._terms)
        return np.asarray(2.0 * weight / noise * own_weight - (weight / noise) ** 2 * own_noise)

    def _variance(self, sums: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weight W, and noise C: but for the share of the owners, quality falls in C / W^2."""
        moments = self.joint.moments(sums)
        return moments[..., 0], np.maximum(moments[..., 1], 1e-30)

    def _beginning(self, steps: _RankedSteps) -> IntArray:
        first = self._terms[self._rows, steps.start].sum(axis=0)
        before, after = self._terms[steps.owner, steps.old], self._terms[steps.owner, steps.new]
        sums = np.concatenate([first[None], first + np.cumsum(after - before, axis=0)])
        paid = np.concatenate([[0], np.cumsum(steps.price)]).astype(np.int64)
        taken = int(np.argmax(self._score(self.joint.quality(sums), paid)))
        portfolio = steps.start.copy()
        portfolio[steps.owner[:taken]] = steps.new[:taken]  # later steps of an owner come later
        return portfolio

    def changed(self, portfolio: IntArray) -> IntArray:
        """The portfolio after the best change of one contract, and again, while that helps."""
        portfolio, score = portfolio.copy(), self.score_of(portfolio)
        for _ in range(_CHANGES):
            sums, now = self._sums(portfolio), self.reserves[self._rows, portfolio]
            own = self._terms[self._rows, portfolio]
            quality = self.joint.quality(sums + self._terms - own[:, None])
            paid = now.sum() + self.reserves - now[:, None]
            scores = np.where(self._for_sale, self._score(quality, paid), -np.inf)
            owners, levels = np.nonzero(scores == scores.max())
            first = np.argmin(self._keys[owners])  # ties do not depend on the order of the owners
            owner, level = owners[first], levels[first]
            changed = portfolio.copy()
            changed[owner] = level
            better = self.score_of(changed)
            if not better > score:
                break
            portfolio, score = changed, better
        return portfolio


@dataclass(frozen=True)
class _RankedSteps:
    """Steps from one level to the next worth taking, best first; an owner's own are in order.

    ``start`` is the level of each owner that costs nothing.
    """

    start: IntArray
    owner: IntArray
    old: IntArray
    new: IntArray
    price: FloatArray


def _steps_by_worth(worth: FloatArray, price: FloatArray, keys: KeyArray) -> _RankedSteps:
    """The steps along the upper hull of (price, worth) of each owner, all owners together.

    Prices are infinite where a level is not for sale; ``keys`` settle ties.
    """
    rows = np.arange(len(worth))
    now = start = np.argmax(np.where(price == 0.0, worth, -np.inf), axis=1)
    taken: list[tuple[NDArray[Any], ...]] = []
    while True:
        more = worth - worth[rows, now][:, None]
        extra = price - price[rows, now][:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = np.where((extra > 0.0) & (more > 0.0), more / extra, 0.0)
        best = np.argmax(slope, axis=1)
        rate = slope[rows, best]
        going = np.flatnonzero(rate > 0.0)
        if not len(going):
            break
        step = (going, now[going], best[going], extra[going, best[going]], rate[going])
        taken.append(step)
        now = now.copy()
        now[going] = best[going]
    if not taken:
        nothing = np.zeros(0, dtype=np.int64)
        return _RankedSteps(start, nothing, nothing, nothing, np.zeros(0))
    owner, old, new, cost, rate = (np.concatenate(column) for column in zip(*taken, strict=True))
    turn = np.repeat(np.arange(len(taken)), [len(step[0]) for step in taken])
    order = np.lexsort((turn, keys[owner], -rate))
    return _RankedSteps(start, owner[order], old[order], new[order], cost[order])
