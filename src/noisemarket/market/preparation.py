"""A scenario made ready to be run as a market, and the deals that its budget allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.protocol import Contracts
from noisemarket.ledger.money import prices, to_micro
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import Order, order
from noisemarket.owner.terms import privacy_cap
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import Mechanism
from noisemarket.scenario import Scenario


def within_budget(
    environment: Environment, contracts: Contracts, budget: int | None
) -> Contracts:  # fmt: skip
    """The contracts that a budget in micro-units pays: most gain for the curator per money first.

    One that does not fit is left out, and its owner keeps its noise; cheaper ones behind it may
    still fit. Where there is no budget all are kept.
    """
    if budget is None:
        return contracts
    cost = np.array(prices(environment.levels.payments), dtype=object)[contracts.payment]
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


@dataclass(frozen=True)
class PreparedMarket:
    """A scenario that can be run: its names are known, its data is dealt out.

    ``order`` is the job with all owners' noise. Under contract it trains with less.
    """

    scenario: Scenario
    environment: Environment
    order: Order

    def under(self, contracts: Contracts) -> Order:
        """The job under these contracts; none allows more than its rounds cost."""
        sigma = self.environment.levels.sigmas[contracts.saving]
        agreed = order(self.scenario, self.environment, sigma, like=self.order)
        rounds = agreed.plan.rounds
        budgets = tuple(replace(b, rho_cap=privacy_cap(b, rounds)) for b in agreed.budgets)
        return replace(agreed, budgets=budgets)


def prepare(scenario: Scenario, *, secrets: bool = True) -> PreparedMarket:
    """Make a scenario ready to run. Unknown names, too little data and a cap that allows no round
    are refused. With ``secrets`` this machine acts for the owners too: the scenario must say what
    only they know."""
    mechanism = find_mechanism(scenario.mechanism)
    check_weighting(mechanism, scenario)
    environment = scenario.environment(secrets=secrets)
    if not secrets:
        check_asks(scenario, environment)
    mechanism.check(environment, run_options(scenario))
    full = np.full(len(environment), scenario.game.sigma_max)
    return PreparedMarket(scenario, environment, order(scenario, environment, full))


def check_asks(scenario: Scenario, environment: Environment) -> None:
    """Refuse a mechanism that needs what only owners know, where owners answer for themselves."""
    mechanism = find_mechanism(scenario.mechanism)
    if mechanism.knows == "everything":
        remedy = (
            "needs the private numbers of all owners, which owners on their own machines do not "
            "tell: choose a mechanism that asks them, such as clock."
        )
        raise BadInput("mechanism", scenario.mechanism, remedy)
    if "spread" in mechanism.knows and not environment.population.privacy_cost.any():
        remedy = "needs to know how costs are spread, and the population file does not say it."
        raise BadInput("mechanism", scenario.mechanism, remedy)


def check_weighting(mechanism: Mechanism, scenario: Scenario) -> None:
    """Refuse a mechanism that values owners together where updates are not weighted by noise."""
    if mechanism.joint and scenario.training.weighting != "noise":
        remedy = f"{scenario.mechanism} counts on weights by noise: give noise."
        raise BadInput("training.weighting", scenario.training.weighting, remedy)
