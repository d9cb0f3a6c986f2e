"""A scenario made ready to be run as a market, once for all that is done with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.market.deals import Deals
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import Order, order
from noisemarket.owner.terms import privacy_cap
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import Mechanism
from noisemarket.scenario import Scenario


@dataclass(frozen=True)
class PreparedMarket:
    """A scenario that can be run: its names are known, its data is dealt out.

    ``order`` is the job with all owners' noise. Under contract it trains with less.
    """

    scenario: Scenario
    environment: Environment
    order: Order

    def under(self, deals: Deals) -> Order:
        """The job under these deals; no contract allows more than its rounds cost."""
        sigma = np.array([deal.sigma for deal in deals.deals])
        agreed = order(self.scenario, self.environment, sigma, like=self.order)
        rounds = agreed.plan.rounds
        budgets = tuple(replace(b, rho_cap=privacy_cap(b, rounds)) for b in agreed.budgets)
        return replace(agreed, budgets=budgets)


def prepare(scenario: Scenario, *, secrets: bool = True) -> PreparedMarket:
    """Make a scenario ready to be run, once for all that is done with it.

    Args:
        scenario: what to run.
        secrets: whether the scenario must say what only owners know, because this machine acts for
            them too.

    Raises:
        BadInput: it cannot be run: unknown names, too little data, a cap that allows no round.
    """
    mechanism = find_mechanism(scenario.mechanism)
    check_weighting(mechanism, scenario)
    environment = scenario.environment(secrets=secrets)
    if not secrets:
        check_asks(scenario, environment)
    mechanism.check(environment, run_options(scenario))
    full = np.full(len(environment), scenario.game.sigma_max)
    return PreparedMarket(scenario, environment, order(scenario, environment, full))


def check_asks(scenario: Scenario, environment: Environment) -> None:
    """Refuse a mechanism that needs what only owners know, where owners answer for themselves.

    Raises:
        BadInput: it does.
    """
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
    """Refuse a mechanism that values owners together where updates are not weighted by noise.

    Raises:
        BadInput: it counts on weights by noise.
    """
    if mechanism.joint and scenario.training.weighting != "noise":
        remedy = f"{scenario.mechanism} counts on weights by noise: give noise."
        raise BadInput("training.weighting", scenario.training.weighting, remedy)
