"""The two sides of the market and what each knows: private information stays private here.

``OwnerSide`` alone holds privacy costs and markups, ``CuratorSide`` alone the curator's weights.
Each turns what it knows into tables over (saving, payment) of its own; only those meet, in
``protocol.py``, where the simulation plays. All tables have shape ``(owners, J + 1, K + 1)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.surface import LossSurface

Payoff = Literal["printed", "privacy_loss"]
BoolArray = NDArray[np.bool_]

SLACK = 1e-9
"""Rounding allowance of the signing tests, as a part of the largest payoff at stake: prices sit
exactly on the owner's limit quite often."""


@dataclass(frozen=True)
class OwnerSide:
    """The owners' preferences: payoff F_n = payment_value p - privacy loss (owner payoff equation).

    ``payoff = "privacy_loss"``: the loss is ``privacy_weight c saving`` (with the sign corrected);
    ``payoff = "printed"``: it is ``privacy_weight c (sigma_max - saving)``, as the paper prints it.
    """

    levels: Levels
    payoff: Payoff
    payment_value: float
    privacy_weight: float
    privacy_cost: FloatArray
    markup: FloatArray

    def __len__(self) -> int:
        return len(self.privacy_cost)

    def traded(self) -> FloatArray:
        """The privacy that each saving counts for: what a unit of privacy cost is the cost of."""
        savings = self.levels.savings
        return self.levels.sigma_max - savings if self.payoff == "printed" else savings

    def reporting(self, costs: FloatArray) -> OwnerSide:
        """This one owner as it would be with each of these privacy costs."""
        return replace(self, privacy_cost=costs, markup=np.repeat(self.markup, len(costs)))

    def _loss(self, some: slice = slice(None)) -> FloatArray:
        return self.privacy_weight * self.privacy_cost[:, None] * self.traded()[some]

    def payoffs(self) -> FloatArray:
        """What each owner gets at every (saving, payment)."""
        income = self.payment_value * self.levels.payments
        return np.asarray(income[None, None, :] - self._loss()[:, :, None])

    def gains(self) -> FloatArray:
        """The same, over what the owner has without a trade."""
        payoffs = self.payoffs()
        return payoffs - payoffs[:, :1, :1]

    def signs(self) -> BoolArray:
        """Where each owner signs: the income covers the privacy sold, markup included."""
        return np.asarray(self.income()[None, None, :] >= self._least()[:, :, None])

    def accepts(self, saving: int, payment: int) -> BoolArray:
        """Whether each owner signs one contract: the same answer, without the whole table."""
        least = self._least(slice(saving, saving + 1))[:, 0]
        return np.asarray(self.income()[payment] >= least)

    def reserves(self, some: slice = slice(None)) -> NDArray[np.int64]:
        """The lowest payment level at which each owner signs each of some savings; K + 1 where
        there is none."""
        return np.searchsorted(self.income(), self._least(some)).astype(np.int64)

    def surplus(self, saving: NDArray[np.int64], payment: NDArray[np.int64]) -> FloatArray:
        """What contracts, one for each owner, leave it over its limit: its markup counts as cost.

        An owner signs what leaves it something. So by this it also judges what a lie brings.
        """
        more = self._loss() - self._loss(slice(0, 1))
        sold = np.take_along_axis(more, np.asarray(saving)[:, None], axis=1)[:, 0]
        return np.asarray(self.income()[payment] - (1.0 + self.markup) * sold)

    def base(self) -> FloatArray:
        """What each owner has without a trade."""
        return np.asarray(-self._loss(slice(0, 1))[:, 0])

    def gains_at(self, payments: NDArray[np.int64]) -> FloatArray:
        """What each owner gains at each saving if it is paid the given level, one for each."""
        loss = self._loss()
        return np.asarray(self.income()[payments] - (loss - loss[:, :1]))

    def income(self) -> FloatArray:
        """What each payment is worth to an owner."""
        return self.payment_value * self.levels.payments

    def _least(self, some: slice = slice(None)) -> FloatArray:
        """The least income for which each owner signs each of some savings."""
        more = self._loss(some) - self._loss(slice(0, 1))
        extra = (1.0 + self.markup)[:, None] * more
        return np.asarray(extra - SLACK * self.income()[-1])


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

    def gains(self) -> FloatArray:
        """The same, over what the curator has without a trade."""
        payoffs = self.payoffs()
        return payoffs - payoffs[:, :1, :1]

    def signs(self) -> BoolArray:
        """Where the curator signs: the quality bought is worth its price."""
        return np.asarray(np.arange(self.levels.shape[1]) <= self.limits()[:, :, None])

    def limits(self) -> NDArray[np.int64]:
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
        """What each payment costs the curator."""
        return (1.0 - self.quality_weight) * self.payment_cost * self.levels.payments
