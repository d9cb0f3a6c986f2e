"""Auctions by sealed bids and the posted price: nobody gains by another bid, budgets hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from benchmarks.lying import surplus

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import BoolArray, IntArray
from noisemarket.game.value import JointValue
from noisemarket.market.negotiation import negotiate, run_options
from noisemarket.market.orders import within_budget
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.pricing.auctions import SealedBids
from noisemarket.pricing.mechanism import Demand
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.slow

AUCTIONS = ["pac_auction", "csra_auction"]
ALL = [*AUCTIONS, "posted_price"]
CHEAP = {"distribution": "uniform", "low": 0.1, "high": 1.2}
KINDS = {
    "alike": {"privacy_cost": CHEAP},
    "sizes": {
        "privacy_cost": CHEAP,
        "data_size": {"distribution": "uniform", "low": 20, "high": 900},
    },
    "equal costs": {"privacy_cost": 0.5},
    "a curator who pays anything": {"privacy_cost": CHEAP, "quality_weight": 1.0},
}
BUDGETS = [None, 9.0, 26.0]
Award = Callable[[IntArray], Contracts]


@cache
def market(kind: str, seed: int = 1, owners: int = 3) -> Environment:
    scenario = Scenario.from_preset("market", seed=seed, owners=owners, J=6, K=4, **KINDS[kind])
    return scenario.environment()


def award(name: str, environment: Environment, budget: float | None) -> tuple[Award, int]:
    """What a mechanism makes of bids, and the level down to which it buys."""
    options = run_options(Scenario.from_preset("market"))
    options = replace(options, demand=Demand(floor=0.1, budget=budget))
    mechanism = MECHANISMS[name]
    if isinstance(mechanism, SealedBids):
        return mechanism.award(environment, options, 5), 5

    def contracts(bids: IntArray) -> Contracts:
        answers = replace(options, asker=Bidders(environment, bids))
        return mechanism.run(environment, answers).contracts

    return contracts, 5


class Bidders(ArrayAsker):
    """Owners that answer by given limits."""

    def __init__(self, environment: Environment, bids: IntArray) -> None:
        super().__init__(environment)
        self._bids = bids

    def bid(self, saving: int) -> IntArray:
        return self._bids

    def stay(self, saving: int, owners: IntArray, payments: IntArray) -> BoolArray:
        return self._bids[owners] <= payments


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_no_bid_is_better_than_the_limit_whatever_the_others_bid(
    name: str, kind: str, budget: float | None
) -> None:
    """Every profile of bids, every owner, every cost that has a level as its limit."""
    environment = market(kind)
    rule, saving = award(name, environment, budget)
    top = environment.levels.payment_levels
    payments = environment.levels.payments
    bids = range(1, top + 2)
    awards: dict[tuple[int, ...], Contracts] = {}
    for profile in itertools.product(bids, repeat=len(environment)):
        won = awards[profile] = rule(np.array(profile, np.int64))
        assert budget is None or payments[won.payment].sum() <= budget
        assert (won.payment[won.signed] >= 1).all()
        assert set(won.saving[won.signed]) <= {saving}
    for others in itertools.product(bids, repeat=len(environment) - 1):
        for owner in range(len(environment)):
            prices = []
            for bid in bids:
                won = awards[(*others[:owner], bid, *others[owner:])]
                prices.append(int(won.payment[owner]) if won.signed[owner] else None)
            for limit, cost in itertools.product(range(1, top + 1), (-0.99, -0.5, 0.0)):
                worth = [0.0 if p is None else p - (limit + cost) for p in prices]
                assert worth[limit - 1] >= 0.0, "nobody loses"
                assert worth[limit - 1] >= max(worth) - 1e-12, "nobody gains by another bid"


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("budget", [9.0, 20.0, 33.0, 70.0])
def test_the_pac_auction_is_that_of_ghosh_and_roth(seed: int, budget: float) -> None:
    """Where money alone decides: k, and min(B / k, the next bid), by their definition."""
    environment = Scenario.from_preset(
        "market", seed=seed, owners=12, K=64, quality_weight=1.0, privacy_cost=CHEAP
    ).environment()
    rule, _ = award("pac_auction", environment, budget)
    bids = np.random.default_rng(seed).permutation(np.arange(3, 63, 5))
    won = rule(bids)
    step, ranked = environment.levels.payments[1], np.sort(bids)
    fits = [k for k in range(1, 13) if ranked[k - 1] * step <= budget / k]
    if not fits:
        assert not won.signed.any()
        return
    k = max(fits)
    assert won.signed.sum() == k
    assert (bids[won.signed] <= ranked[k - 1]).all()
    share = int(budget / k / step)  # on the grid, rounded down
    following = ranked[k] if k < 12 else 64
    paid = set(won.payment[won.signed])
    # A winner that would go after the first loser at an equal bid has to bid one level less.
    assert paid <= {min(share, following), min(share, following - 1)}
    assert min(share, following - 1) <= min(paid)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("budget", [None, 0.0, 30.0, 100.0, 1e30])
@pytest.mark.parametrize("sizes", [600, {"distribution": "uniform", "low": 20, "high": 900}])
def test_budget_limits_and_worth_hold_for_many(
    name: str, budget: float | None, sizes: object
) -> None:
    scenario = Scenario.from_preset(
        "market", data_size=sizes, budget="none" if budget is None else budget
    )
    result = negotiate(scenario, mechanism=name)
    environment, contracts = result.environment, result.agreement.contracts
    paid = environment.levels.payments[contracts.payment].sum()
    assert budget is None or paid <= budget
    if budget is not None:
        deals = within_budget(environment, contracts, round(min(budget, 1e9) * 1_000_000))
        assert np.array_equal(deals.saving, contracts.saving)
        assert np.array_equal(deals.payment, contracts.payment)
    assert JointValue.of(environment).gain(contracts) >= 0.0
    side = environment.owner_side()
    assert (surplus(side, contracts.saving, contracts.payment)[contracts.signed] >= -1e-9).all()
    if budget != 30.0:  # two sellers may not be worth it
        assert contracts.signed.any() == (budget != 0.0)
    bids = ArrayAsker(environment).bid(10)
    assert (bids[contracts.signed] <= contracts.payment[contracts.signed]).all()


def test_more_data_for_the_same_price_goes_first() -> None:
    environment = market("sizes", owners=6)
    rule, _ = award("csra_auction", environment, 9.0)
    won: Contracts = rule(np.full(6, 2))
    records = environment.population.data_size
    assert 0 < won.signed.sum() < 6
    assert records[won.signed].min() > records[~won.signed].max()
    equally, _ = award("pac_auction", environment, 9.0)
    assert not np.array_equal(equally(np.full(6, 2)).signed, won.signed)


@pytest.mark.parametrize("budget", [None, 40.0])
def test_the_posted_price_is_the_best_of_all_single_prices(budget: float | None) -> None:
    scenario = Scenario.from_preset(
        "market", seed=3, budget="none" if budget is None else budget, privacy_cost=CHEAP
    )
    found = negotiate(scenario, mechanism="posted_price")
    environment, joint = found.environment, JointValue.of(found.environment)
    limit, best = ArrayAsker(environment).bid(10), 0.0
    for level in range(1, environment.levels.payment_levels + 1):
        price, willing = environment.levels.payments[level], np.flatnonzero(limit <= level)
        if budget is not None:
            willing = willing[: int(budget / price)]  # all have equally many records
        saving = np.isin(np.arange(100), willing) * 10
        contracts = Contracts(saving, np.where(saving > 0, level, 0), saving > 0)
        best = max(best, joint.gain(contracts))
    assert found.learned.predicted_value == pytest.approx(best)
    assert best > 0.0


@pytest.mark.parametrize("name", ALL)
def test_one_owner_with_an_absurd_cost_changes_nobody_else(name: str) -> None:
    environment = Scenario.from_preset("market", owners=40, privacy_cost=CHEAP).environment()
    options = replace(run_options(Scenario.from_preset("market")), demand=Demand(budget=60.0))
    costs = environment.phases[-1].privacy_cost
    costs[0] = 50.0
    before = MECHANISMS[name].run(environment, options).contracts
    costs[0] = 1e9
    after = MECHANISMS[name].run(environment, options).contracts
    np.testing.assert_array_equal(after.payment, before.payment)
    assert before.signed.any()


@pytest.mark.parametrize("name", ALL)
def test_owners_of_whom_none_is_willing_sell_nothing(name: str) -> None:
    result = negotiate(Scenario.from_preset("market", owners=5, privacy_cost=90.0), mechanism=name)
    assert not result.agreement.contracts.signed.any()


@pytest.mark.parametrize("name", ALL)
def test_a_floor_that_leaves_nothing_to_sell_is_refused(name: str) -> None:
    scenario = Scenario.from_preset("market", floor=0.6)
    with pytest.raises(BadInput, match=r"market.floor is 0.6: .* below 0.6"):
        MECHANISMS[name].check(scenario.environment(), run_options(scenario))
