"""The two sides of the market and what each knows: private information stays private here.

Each side turns its own knowledge into tables of shape ``(owners, J + 1, K + 1)``; only those meet,
in ``environment.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray, Levels, LossSurface

Payoff = Literal["printed", "privacy_loss", "epsilon_loss"]

SLACK = 1e-9
"""Rounding allowance of the signing tests, as a part of the largest payoff at stake: prices sit
exactly on the owner's limit quite often."""

_CHUNK = 1 << 14
"""Owners that choose from a menu at a time: memory does not grow with the population."""

_ERROR, _SILENCE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class Behaviour:
    """How far owners are from answering exactly by what pays for them.

    An owner misjudges what a contract leaves it by a logistic error of scale ``temperature``: it
    accepts with probability ``1 / (1 + exp(-x / t))`` what leaves it ``x`` over its limit. It
    answers the share ``answer_rate`` of the questions; silence accepts nothing.
    """

    temperature: float = 0.0
    answer_rate: float = 1.0
    seed: int = 0

    @property
    def exact(self) -> bool:
        return self.temperature == 0.0 and self.answer_rate == 1.0

    def errors(self, keys: KeyArray, questions: IntArray) -> FloatArray:
        """By how much each owner misjudges each question: a row per owner."""
        draw = np.clip(self._uniform(keys, questions, _ERROR), 1e-16, 1.0 - 1e-16)
        return np.asarray(self.temperature * (np.log(draw) - np.log1p(-draw)))

    def answers(self, keys: KeyArray, questions: IntArray) -> BoolArray:
        return np.asarray(self._uniform(keys, questions, _SILENCE) < self.answer_rate)

    def _uniform(self, keys: KeyArray, questions: IntArray, salt: np.uint64) -> FloatArray:
        owners = scrambled(keys ^ scrambled(np.array([self.seed], np.uint64) ^ salt))
        asked = scrambled(questions.astype(np.uint64) + np.uint64(1))
        words = scrambled(owners[:, None] ^ asked[None, :])
        return np.asarray(words >> np.uint64(11), dtype=float) / 2.0**53


EXACT = Behaviour()
"""Owners that answer every question exactly by what pays for them."""


def scrambled(words: KeyArray) -> KeyArray:
    """SplitMix64's output function: a random number for every owner, by its key alone."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True)
class OwnerSide:
    """The owners' preferences: payoff F_n = payment_value p - privacy loss (owner payoff equation).

    ``payoff = "privacy_loss"``: the loss is ``privacy_weight c saving`` (with the sign corrected);
    ``payoff = "printed"``: it is ``privacy_weight c (sigma_max - saving)``, as the paper prints it;
    ``payoff = "epsilon_loss"``: it is ``privacy_weight c sold``, the privacy that each saving sells
    by the account of the job, in units in which half of all noise counts as in the linear form.

    An owner signs nothing that leaves it less noise than its ``floor``, nor what sells infinitely
    much. ``key`` names its errors, if its ``behaviour`` has any.
    """

    levels: Levels
    payoff: Payoff
    payment_value: float
    privacy_weight: float
    privacy_cost: FloatArray
    markup: FloatArray
    floor: FloatArray | None = None
    sold: FloatArray | None = None
    key: KeyArray | None = None
    behaviour: Behaviour = EXACT

    def __len__(self) -> int:
        return len(self.privacy_cost)

    def traded(self) -> FloatArray:
        """The privacy that each saving counts for: what a unit of privacy cost is the cost of.

        What sells infinitely much counts as ten times the most that does not: nobody signs it.
        """
        savings = self.levels.savings
        if self.payoff == "epsilon_loss":
            if self.sold is None:
                raise BadInput("payoff", self.payoff, "needs the account of a job: give sold.")
            most = max(self.sold[np.isfinite(self.sold)].max(), self.levels.sigma_max)
            return np.where(np.isfinite(self.sold), self.sold, 10.0 * most)
        return self.levels.sigma_max - savings if self.payoff == "printed" else savings

    def differs(self, other: OwnerSide) -> BoolArray:
        """Whether each owner wants something else than on another side."""
        same = (self.privacy_cost == other.privacy_cost) & (self.markup == other.markup)
        return np.asarray(~same)

    def payoffs(self) -> FloatArray:
        """What each owner gets at every (saving, payment)."""
        income = self.payment_value * self.levels.payments
        return np.asarray(income[None, None, :] - self._loss()[:, :, None])

    def payoffs_of(self, saving: IntArray, payment: IntArray) -> FloatArray:
        """What contracts, one for each owner, bring it: the same without the whole table."""
        return np.asarray(self.income()[payment] - self._loss()[np.arange(len(self)), saving])

    def gains(self) -> FloatArray:
        """The same, over what the owner has without a trade."""
        payoffs = self.payoffs()
        return payoffs - payoffs[:, :1, :1]

    def signs(self) -> BoolArray:
        """Where each owner signs: the income covers the privacy sold, markup included."""
        return self._signs(slice(None), slice(None))

    def accepts(self, saving: int, payment: int) -> BoolArray:
        """Whether each owner signs one contract: the same answer, without the whole table."""
        return self._signs(slice(saving, saving + 1), slice(payment, payment + 1))[:, 0, 0]

    def reserves(self, some: slice = slice(None)) -> IntArray:
        """The lowest payment level that pays for each of some savings, errors aside; K + 1 where
        there is none."""
        found = np.searchsorted(self.income(), self._least(some)).astype(np.int64)
        return np.where(self.sells(some), found, self.levels.payment_levels + 1)

    def asks(self, some: slice = slice(None)) -> IntArray:
        """The payment level that each owner names if it is asked once for what it sells each of
        some savings; K + 1 where it does not sell it, or does not answer."""
        if self.behaviour.exact:
            return self.reserves(some)
        questions = -1 - np.arange(self.levels.saving_levels + 1)[some]  # apart from all contracts
        errors, answers = self._habits(questions)
        errors[:, questions == -1], answers[:, questions == -1] = 0.0, True
        found = np.searchsorted(self.income(), self._least(some) - errors)
        sells = self.sells(some) & answers
        return np.where(sells, found, self.levels.payment_levels + 1).astype(np.int64)

    def choose(self, savings: IntArray, payments: IntArray) -> IntArray:
        """The item of a menu (level numbers) that each owner takes; -1 for none.

        The printed payoff has the wrong sign: by it nobody would have to be paid. So privacy counts
        in a menu as in ``privacy_loss``.
        """
        traded = self.levels.savings if self.payoff == "printed" else self.traded()
        item = chosen_items(
            traded[savings],
            self.levels.payments[payments],
            self.privacy_cost * (1.0 + self.markup),
            np.where(self.sells(), traded, 0.0).max(axis=1),
            self.payment_value,
            self.privacy_weight,
        )
        for one in np.unique(item[item >= 0]) if not self.behaviour.exact else ():
            accepts = self.accepts(int(savings[one]), int(payments[one]))
            item = np.where((item == one) & ~accepts, -1, item)
        return item

    def sells(self, some: slice = slice(None)) -> BoolArray:
        """Which of some savings each owner sells at all: they leave it its floor, and not
        infinitely much is sold."""
        all_noise, kept = self.levels.sigma_max, self.levels.sigmas[some]
        least = np.minimum(self.floors(), all_noise)  # without a sale all noise is kept
        open_to = kept[None, :] + SLACK * all_noise >= least[:, None]
        if self.payoff == "epsilon_loss" and self.sold is not None:
            open_to &= np.isfinite(self.sold)[some]
        return np.asarray(open_to)

    def floors(self) -> FloatArray:
        return np.zeros(len(self)) if self.floor is None else self.floor

    def _signs(self, savings: slice, payments: slice) -> BoolArray:
        over = self.income()[payments][None, None, :] - self._least(savings)[:, :, None]
        sells = self.sells(savings)[:, :, None]
        if self.behaviour.exact:
            return np.asarray((over >= 0.0) & sells)
        cells = np.arange(np.prod(self.levels.shape)).reshape(self.levels.shape)
        errors, answers = self._habits(cells[savings, payments].reshape(-1))
        agrees = (over + errors.reshape(over.shape) >= 0.0) & answers.reshape(over.shape)
        free = np.arange(self.levels.saving_levels + 1)[savings, None] == 0
        return np.asarray(np.where(free, over >= 0.0, agrees) & sells)

    def _habits(self, questions: IntArray) -> tuple[FloatArray, BoolArray]:
        keys = np.arange(len(self), dtype=np.uint64) if self.key is None else self.key
        errors = self.behaviour.errors(keys, questions)
        return errors, self.behaviour.answers(keys, questions)

    def _loss(self, some: slice = slice(None)) -> FloatArray:
        return self.privacy_weight * self.privacy_cost[:, None] * self.traded()[some]

    def base(self) -> FloatArray:
        """What each owner has without a trade."""
        return np.asarray(-self._loss(slice(0, 1))[:, 0])

    def least_payments(self) -> FloatArray:
        """The money for which each owner sells each saving, between payment levels too; infinite
        where no money does."""
        loss = self._loss()
        asked = (1.0 + self.markup)[:, None] * (loss - loss[:, :1])
        sold = self.sells() & (self.payment_value > 0.0)
        return np.where(sold, asked / max(self.payment_value, SLACK), np.inf)

    def gains_at(self, payments: IntArray) -> FloatArray:
        """What each owner gains at each saving if it is paid the given level, one for each."""
        loss = self._loss()
        return np.asarray(self.income()[payments] - (loss - loss[:, :1]))

    def income(self) -> FloatArray:
        return self.payment_value * self.levels.payments

    def _least(self, some: slice = slice(None)) -> FloatArray:
        """The least income for which each owner signs each of some savings."""
        more = self._loss(some) - self._loss(slice(0, 1))
        extra = (1.0 + self.markup)[:, None] * more
        return np.asarray(extra - SLACK * self.income()[-1])


def chosen_items(
    savings: FloatArray,
    payments: FloatArray,
    cost: FloatArray,
    most: float | FloatArray,
    payment_value: float,
    privacy_weight: float,
) -> IntArray:
    """The item of a menu that each owner likes best at its reservation cost, -1 for none.

    Up to a rounding allowance, ties go to the larger saving and a sale at no gain is made. An item
    without a saving counts as taking none; of equal items the first is meant. ``most`` is the
    largest saving that each owner would sell at all.
    """
    order = np.lexsort((-payments, -savings))  # larger savings first: argmax takes the first
    order = order[np.diff(savings[order], prepend=np.inf) != 0.0]
    sold = order[savings[order] > 0]
    loss = privacy_weight * np.append(savings[sold], 0.0)
    income = payment_value * np.append(payments[sold], 0.0)
    index = np.append(sold, -1)
    limit = np.broadcast_to(most, cost.shape) + SLACK
    given = np.append(savings[sold], -np.inf)  # to take nothing is open to all
    chosen = np.empty(cost.size, dtype=np.int64)
    for start in range(0, cost.size, _CHUNK):
        some = slice(start, start + _CHUNK)
        utility = income - cost[some, None] * loss
        utility[given > limit[some, None]] = -np.inf
        good = utility >= utility.max(axis=1, keepdims=True) - SLACK
        chosen[some] = index[np.argmax(good, axis=1)]
    return chosen


@dataclass(frozen=True)
class CuratorSide:
    """The curator's preferences: F_S,n = w value quality - (1 - w) cost p, its payoff equation.

    ``beta`` is each owner's non-IID degree as the curator's quality model sees it.
    """

    levels: Levels
    surface: LossSurface
    quality_weight: float
    quality_value: float
    payment_cost: float
    beta: FloatArray

    def qualities(self) -> FloatArray:
        """Model quality at every saving, one row an owner."""
        sigma = self.levels.sigma_max - self.levels.savings
        return self.surface.quality(sigma[None, :], self.beta[:, None])

    def payoffs(self) -> FloatArray:
        """What the curator gets from each owner at every (saving, payment)."""
        value = self.quality_weight * self.quality_value * self.qualities()
        return np.asarray(value[:, :, None] - self.price()[None, None, :])

    def payoffs_of(self, saving: IntArray, payment: IntArray) -> FloatArray:
        """What contracts, one with each owner, bring the curator."""
        value = self.quality_weight * self.quality_value * self.qualities_of(saving)
        return np.asarray(value - self.price()[payment])

    def qualities_of(self, saving: IntArray) -> FloatArray:
        sigma = self.levels.sigma_max - self.levels.savings
        return self.surface.quality(sigma[saving], self.beta)

    def gains(self) -> FloatArray:
        """The same, over what the curator has without a trade."""
        payoffs = self.payoffs()
        return payoffs - payoffs[:, :1, :1]

    def signs(self) -> BoolArray:
        """Where the curator signs: the quality bought is worth its price."""
        return np.asarray(np.arange(self.levels.shape[1]) <= self.limits()[:, :, None])

    def limits(self) -> IntArray:
        """The highest payment level that the curator signs for each saving of each owner; -1 where
        there is none."""
        worth, price = self.worth(), self.price()
        at_stake = np.maximum(worth.max(axis=1), price[-1] - worth.min(axis=1))
        most = worth + SLACK * at_stake[:, None]
        return np.asarray(np.searchsorted(price, most, side="right") - 1, dtype=np.int64)

    def base(self) -> FloatArray:
        """What the curator has from each owner without a trade."""
        return self.quality_weight * self.quality_value * self.qualities()[:, 0]

    def worth(self) -> FloatArray:
        """What each saving of each owner is worth to the curator, over no saving."""
        value = self.quality_weight * self.quality_value * self.qualities()
        return np.asarray(value - value[:, :1])

    def price(self) -> FloatArray:
        return (1.0 - self.quality_weight) * self.payment_cost * self.levels.payments
