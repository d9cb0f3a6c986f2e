"""From what was negotiated to who gets which contract, within the curator's budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.ledger.money import to_micro
from noisemarket.mechanisms.mechanism import Contracts
from noisemarket.owner.terms import Deal


@dataclass(frozen=True)
class Deals:
    """All owners' deals, in the owners' order. ``agreed`` counts those with a trade that the budget
    pays, ``over_budget`` those that it cannot pay."""

    deals: tuple[Deal, ...]
    agreed: int
    over_budget: int

    @property
    def total(self) -> int:
        """What all of them cost at most."""
        return sum(deal.payment for deal in self.deals)


def strike(environment: Environment, contracts: Contracts, budget: int | None) -> Deals:
    """The deals that the budget allows: those with most gain for the curator per money first.

    A deal that does not fit is left out, and its owner keeps its noise; cheaper ones behind it may
    still fit. Where there is no budget all are struck.
    """
    levels = environment.levels
    payments = [to_micro(float(amount), "payment") for amount in levels.payments]
    cost = np.array([payments[k] for k in contracts.payment], dtype=object)
    taken = np.ones(len(contracts), dtype=bool)
    if budget is not None:
        worth = _gains(environment, contracts) / np.maximum(cost.astype(float), 1.0)
        left = budget
        for index in np.argsort(-worth, kind="stable"):
            if cost[index] <= left:
                left -= cost[index]
            else:
                taken[index] = False
    deals = []
    for index, name in enumerate(environment.population.names):
        level = int(contracts.saving[index]) if taken[index] else 0
        payment = int(cost[index]) if taken[index] else 0
        saving = float(levels.savings[level])
        deals.append(Deal(str(name), saving, levels.sigma_left(level), payment))
    traded = contracts.saving > 0
    return Deals(tuple(deals), int((traded & taken).sum()), int((~taken).sum()))


def _gains(environment: Environment, contracts: Contracts) -> np.ndarray:
    """What each contract brings the curator, over no trade."""
    out = np.zeros(len(contracts))
    for some in environment.slices():
        row = np.arange(some.stop - some.start)
        gains = environment.curator_side(-1, some).gains()
        out[some] = gains[row, contracts.saving[some], contracts.payment[some]]
    return out
