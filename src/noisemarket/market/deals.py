"""From what was negotiated to who gets which contract, within the curator's budget."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.protocol import Contracts
from noisemarket.ledger.money import to_micro
from noisemarket.owner.terms import Deal
from noisemarket.scenario import Scenario


@dataclass(frozen=True)
class Deals:
    """All owners' deals, in the owners' order. ``agreed`` counts those with a trade that the budget
    pays, ``over_budget`` those that it cannot pay; ``levels`` are the level numbers."""

    deals: tuple[Deal, ...]
    agreed: int
    over_budget: int
    levels: Contracts = field(compare=False, repr=False)

    @property
    def total(self) -> int:
        """What all of them cost at most."""
        return sum(deal.payment for deal in self.deals)


def strike(environment: Environment, contracts: Contracts, budget: int | None) -> Deals:
    """The deals that the budget allows: those with most gain for the curator per money first.

    A deal that does not fit is left out, and its owner keeps its noise; cheaper ones behind it may
    still fit. Where there is no budget all are struck.
    """
    levels, kept = environment.levels, within_budget(environment, contracts, budget)
    payments = [to_micro(float(amount), "payment") for amount in levels.payments]
    deals = tuple(
        Deal(str(name), float(levels.savings[j]), levels.sigma_left(int(j)), payments[k])
        for name, j, k in zip(
            environment.population.names, kept.saving, kept.payment, strict=True
        )
    )  # fmt: skip
    over = (kept.saving != contracts.saving) | (kept.payment != contracts.payment)
    return Deals(deals, int((kept.saving > 0).sum()), int(over.sum()), kept)


def within_budget(
    environment: Environment, contracts: Contracts, budget: int | None
) -> Contracts:  # fmt: skip
    """The contracts that a budget in micro-units pays, chosen as ``strike`` says."""
    if budget is None:
        return contracts
    payments = [to_micro(float(amount), "payment") for amount in environment.levels.payments]
    cost = np.array([payments[k] for k in contracts.payment], dtype=object)
    worth = _gains(environment, contracts) / np.maximum(cost.astype(float), 1.0)
    taken, left = np.ones(len(contracts), dtype=bool), budget
    for index in np.argsort(-worth, kind="stable"):
        if cost[index] <= left:
            left -= cost[index]
        else:
            taken[index] = False
    return Contracts(
        np.where(taken, contracts.saving, 0),
        np.where(taken, contracts.payment, 0),
        contracts.signed & taken,
    )


def budget_of(scenario: Scenario) -> int | None:
    """The curator's budget in micro-units."""
    given = scenario.market.budget
    return None if given == "none" else to_micro(float(given), "market.budget")


def _gains(environment: Environment, contracts: Contracts) -> np.ndarray:
    """What each contract brings the curator, over no trade."""
    out = np.zeros(len(contracts))
    for some in environment.slices():
        row = np.arange(some.stop - some.start)
        gains = environment.curator_side(-1, some).gains()
        out[some] = gains[row, contracts.saving[some], contracts.payment[some]]
    return out
