"""What lying brings: nothing where it should not, and elsewhere what trying every lie finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.lying import (
    MOST_EXAMINED,
    examined,
    gained_by_bids,
    gained_by_lying,
    mean_and_most,
    surplus,
)

from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import FloatArray
from noisemarket.market.negotiation import Negotiation, negotiate, run_options
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.mechanism import Direct, RunOptions
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.slow

SCENARIO = Scenario.from_preset(
    "market", owners=30, surface="printed", iterations=300, budget=60.0,
    privacy_cost={"distribution": "uniform", "low": 0.2, "high": 2.0},
    beta={"distribution": "choice", "values": [0.3, 1.0]},
)  # fmt: skip
TRUTHFUL = ["clock", "pac_auction", "csra_auction", "posted_price", "pain_fl", "uniform", "no_dp"]


def lied(environment: Environment, owner: int, cost: float) -> Environment:
    """The environment if one owner names another cost."""
    now = environment.phases[-1]
    costs = now.privacy_cost.copy()
    costs[owner] = cost
    return replace(environment, phases=(replace(now, privacy_cost=costs),))


def by_trying(result: Negotiation, owner: int, costs: FloatArray) -> float:
    """What the best of these costs brings an owner over its own, by running the mechanism."""
    mechanism, options = MECHANISMS[result.scenario.mechanism], run_options(result.scenario)
    side, own = result.environment.owner_side(), result.environment.phases[-1].privacy_cost[owner]
    kept = []
    for cost in (own, *costs):
        found = mechanism.run(lied(result.environment, owner, cost), options).contracts
        kept.append(float(surplus(side, found.saving, found.payment)[owner]))
    return max(kept) - kept[0]


@pytest.mark.compiled
@pytest.mark.parametrize("name", TRUTHFUL)
def test_nobody_gains_where_the_truth_is_best(name: str) -> None:
    gained = gained_by_lying(negotiate(SCENARIO, mechanism=name))
    assert gained is not None
    assert gained.shape == (30,)
    assert gained.max() <= 1e-9


@pytest.mark.parametrize("name", ["equilibrium", "first_best"])
def test_the_exact_answers_pay_for_lies_as_trying_them_finds(name: str) -> None:
    result = negotiate(SCENARIO, mechanism=name)
    gained = gained_by_lying(result)
    assert gained is not None
    assert gained.max() > 0.01
    for owner in np.argsort(gained)[[0, 10, -3, -2, -1]]:
        tried = by_trying(result, int(owner), np.geomspace(0.05, 12.0, 200))
        assert tried <= gained[owner] + 1e-9
        assert tried >= 0.9 * gained[owner] - 1e-9


@pytest.mark.parametrize("name", ["clock", "pac_auction", "csra_auction"])
def test_trying_costs_finds_no_lie_that_pays(name: str) -> None:
    result = negotiate(SCENARIO, mechanism=name)
    for owner in range(0, 30, 7):
        assert by_trying(result, owner, np.linspace(0.05, 2.5, 25)) <= 1e-9


class PaysWhatIsAsked(Direct):
    """Buys from everyone at the price that it names: the auction that invites lies."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        limit = environment.owner_side().reserves(slice(3, 4))[:, 0]
        sold = limit <= environment.levels.payment_levels
        return Contracts(np.where(sold, 3, 0), np.where(sold, limit, 0), sold)


def test_a_price_of_ones_own_choice_brings_the_highest() -> None:
    """The measure does find lies: here everyone should ask for the highest payment."""
    environment, options = SCENARIO.environment(), run_options(SCENARIO)
    mechanism = PaysWhatIsAsked()
    agreement = mechanism.run(environment, options)
    side, every = environment.owner_side(), np.full(30, 3)

    def award(bids: np.ndarray) -> Contracts:
        sold = bids <= environment.levels.payment_levels
        return Contracts(np.where(sold, 3, 0), np.where(sold, bids, 0), sold)

    gained = gained_by_bids(side, side.reserves(slice(3, 4))[:, 0], award)
    most = surplus(side, every, np.full(30, 32))
    honest = surplus(side, agreement.contracts.saving, agreement.contracts.payment)
    np.testing.assert_allclose(gained, np.maximum(most, 0.0) - honest, atol=1e-12)
    assert gained.max() > 0.5


@pytest.mark.compiled
def test_learners_are_judged_by_the_best_answer_to_the_curator() -> None:
    result = negotiate(SCENARIO, mechanism="dypp")
    np.testing.assert_array_equal(gained_by_lying(result), result.agreement.owner_exploitability)


def test_of_many_owners_some_are_examined() -> None:
    few = negotiate(Scenario.from_preset("market", owners=500, K=4), mechanism="pac_auction")
    gained = gained_by_lying(few)
    assert gained is not None
    assert np.isfinite(gained).sum() == MOST_EXAMINED
    assert mean_and_most(gained) == (0.0, 0.0)
    assert examined(3).tolist() == [0, 1, 2]


def test_what_is_not_known_is_said() -> None:
    result = negotiate(SCENARIO, mechanism="best_portfolio")
    assert gained_by_lying(result) is None
    assert mean_and_most(None) == mean_and_most(np.full(3, np.nan)) == (None, None)
