"""The clock auction: nobody gains by another answer, nobody loses, and budgets hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pricing.test_portfolio import reordered

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import BoolArray, Levels
from noisemarket.game.value import JointValue
from noisemarket.market.negotiation import negotiate
from noisemarket.market.orders import within_budget
from noisemarket.pricing.clock import ClockAuction, FallingPrices, floor_level, price_levels
from noisemarket.pricing.mechanism import Demand
from noisemarket.pricing.oracles import best_portfolio
from noisemarket.scenario import Scenario, load_scenario

pytestmark = pytest.mark.slow

SMALL = {"owners": 4, "J": 6, "K": 8}
CHEAP = {"distribution": "uniform", "low": 0.1, "high": 1.2}
KINDS = {
    "alike": {"privacy_cost": CHEAP},
    "sizes": {
        "privacy_cost": CHEAP,
        "data_size": {"distribution": "uniform", "low": 20, "high": 900},
    },
    "equal costs": {"privacy_cost": 0.5},
    "a few who sell": {"privacy_cost": {"distribution": "choice", "values": [0.3, 3]}},
}
DEMANDS = {
    "value": Demand(),
    "budget": Demand(budget=14.0),
    "large budget": Demand(budget=40.0),
    "target": Demand(target=91.0),
    "target and budget": Demand(target=93.0, budget=25.0),
    "scores": Demand(scored=True),
    "scores and budget": Demand(budget=14.0, scored=True),
    "scores and target": Demand(target=91.0, scored=True),
}
CASES = [(k, d) for k in KINDS for d in DEMANDS if k == "sizes" or "scores" not in d]
"""Where all have as many records, scores change nothing."""

Answers = Callable[[int, int], BoolArray]


def market(kind: str, seed: int = 1, **more: object) -> Environment:
    return Scenario.from_preset(
        "market", seed=seed, **{**SMALL, **KINDS[kind], **more}
    ).environment()


def play(environment: Environment, demand: Demand, answers: Answers | None = None) -> Contracts:
    """The contracts if owners answer like this; by default as it pays for them."""
    auction = ClockAuction(environment, demand)
    answers = answers or environment.owner_side().accepts
    while not auction.over:
        stay = np.zeros(len(auction.asked), dtype=bool)
        for price in np.unique(auction.prices).tolist():
            these = auction.prices == price
            stay[these] = answers(auction.saving, price)[auction.asked[these]]
        auction.hear(stay)
    return auction.contracts()


def leaving_at(environment: Environment, last_stay: dict[int, int]) -> Answers:
    """Truthful answers, but for owners that stay down to a given payment level and no longer."""
    side = environment.owner_side()

    def answers(saving: int, price: int) -> BoolArray:
        stay = side.accepts(saving, price)
        for owner, lowest in last_stay.items():
            stay[owner] = price >= lowest
        return stay

    return answers


def surplus(environment: Environment, contracts: Contracts) -> np.ndarray:
    """What each owner has over no trade, its markup counted as cost: what it answers by."""
    now, levels = environment.phases[-1], environment.levels
    cost = environment.privacy_weight * now.privacy_cost * (1.0 + now.markup)
    income = environment.payment_value * levels.payments[contracts.payment]
    return np.asarray(income - cost * levels.savings[contracts.saving])


@pytest.mark.parametrize(
    ("kind", "demand", "seed"),
    [(kind, demand, 1 + place % 2) for place, (kind, demand) in enumerate(CASES)],
)
def test_no_owner_gains_by_staying_longer_or_leaving_earlier(
    kind: str, demand: str, seed: int
) -> None:
    """Every owner, every way of answering, against every deviation of one other owner."""
    environment = market(kind, seed)
    owners, payments = len(environment), environment.levels.payment_levels
    others = [{}, *({1: level} for level in (1, payments + 1))]
    for other in others:
        try:
            honest = surplus(
                environment, play(environment, DEMANDS[demand], leaving_at(environment, other))
            )
        except BadInput:
            continue  # the target is out of reach: nothing is sold
        assert (np.delete(honest, list(other)) >= -1e-9).all(), "nobody loses"
        for owner, lowest in itertools.product(range(owners), range(1, payments + 2)):
            if owner in other:
                continue
            answers = leaving_at(environment, {**other, owner: lowest})
            try:
                lied = surplus(environment, play(environment, DEMANDS[demand], answers))
            except BadInput:
                continue
            assert lied[owner] <= honest[owner] + 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [0.0, 3.0, 14.0, 40.0, 1e30])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_budget_is_never_exceeded_and_nothing_is_cut_after(
    kind: str, budget: float, seed: int
) -> None:
    environment = market(kind, seed)
    contracts = play(environment, Demand(budget=budget))
    paid = environment.levels.payments[contracts.payment].sum()
    assert paid <= budget
    micro = round(min(budget, 1e9) * 1_000_000)
    deals = within_budget(environment, contracts, micro)
    assert np.array_equal(deals.saving, contracts.saving)
    assert np.array_equal(deals.payment, contracts.payment)
    assert (deals.saving > 0).sum() == contracts.signed.sum()


@pytest.mark.parametrize("kind", ["alike", "sizes"])
@pytest.mark.parametrize(
    "demand", ["value", "budget", "large budget", "scores", "scores and budget"]
)
@pytest.mark.parametrize("seed", range(1, 6))
def test_who_stays_is_not_worse_off_when_another_leaves(kind: str, demand: str, seed: int) -> None:
    environment = market(kind, seed)
    before = play(environment, DEMANDS[demand])
    for owner in range(len(environment)):
        never = leaving_at(environment, {owner: environment.levels.payment_levels + 1})
        after = play(environment, DEMANDS[demand], never)
        rest = np.arange(len(environment)) != owner
        held = surplus(environment, after) >= surplus(environment, before) - 1e-9
        assert held[rest].all()


@pytest.mark.parametrize("demand", [Demand(), Demand(budget=100.0), Demand(target=84.0)])
def test_all_winners_sell_the_same_for_prices_one_level_apart_at_most(demand: Demand) -> None:
    environment = Scenario.from_preset("market").environment()
    contracts = play(environment, demand)
    won = contracts.signed
    assert won.sum() >= 3
    assert set(contracts.saving[won]) == {10}
    assert np.ptp(contracts.payment[won]) <= 1
    assert not contracts.saving[~won].any()
    assert not contracts.payment[~won].any()


@pytest.mark.parametrize("demand", [Demand(), Demand(budget=60.0), Demand(target=93.5)])
def test_the_order_of_owners_does_not_matter(demand: Demand) -> None:
    sizes = {"distribution": "uniform", "low": 20, "high": 900}
    environment = Scenario.from_preset("market", data_size=sizes, privacy_cost=CHEAP).environment()
    contracts, turned = play(environment, demand), play(reordered(environment), demand)
    np.testing.assert_array_equal(turned.saving[::-1], contracts.saving)
    np.testing.assert_array_equal(turned.payment[::-1], contracts.payment)


UNEQUAL = {"distribution": "log_uniform", "low": 20, "high": 2000}


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
    st.sampled_from([1, 8, 32, 200]),
    st.booleans(),
)
def test_scored_prices_begin_alike_never_rise_and_follow_the_scores(
    scores: list[float], levels: int, keep_all: bool
) -> None:
    prices = FallingPrices(levels, np.array(scores), keep_all=keep_all)
    course = np.array([prices.at(step) for step in range(len(prices))])
    assert (course[0] == levels).all()
    assert (np.diff(course, axis=0) <= 0).all()
    assert (np.diff(course[:, np.argsort(scores, kind="stable")], axis=1) >= 0).all()
    assert all(len(np.unique(one[one > 0])) <= 36 for one in course.T)
    assert course.min() >= (prices.lowest if keep_all else 0)
    if len(set(scores)) == 1:
        assert course[:, 0].tolist() == price_levels(levels)


def test_scores_change_nothing_where_all_have_as_many_records() -> None:
    environment = Scenario.from_preset("market", privacy_cost=CHEAP).environment()
    for demand in (Demand(), Demand(budget=60.0), Demand(target=94.0)):
        one, scored = play(environment, demand), play(environment, replace(demand, scored=True))
        np.testing.assert_array_equal(one.payment, scored.payment)


def test_scored_prices_are_higher_for_owners_with_more_records() -> None:
    environment = market("sizes", owners=60, J=12, K=32, data_size=UNEQUAL)
    contracts = play(environment, Demand(budget=60.0, scored=True))
    won = np.flatnonzero(contracts.signed)
    by_size = won[np.argsort(environment.population.data_size[won])]
    assert len(by_size) >= 3
    assert contracts.payment[by_size[0]] < contracts.payment[by_size[-1]]


def test_with_scores_a_budget_buys_more_where_owners_are_unequal() -> None:
    """Mean over 8 populations, on both surfaces: never less, and more where money is short."""
    for model, least in (("features", 1.05), ("cnn", 1.03)):
        gains = {scored: [] for scored in (False, True)}
        for seed in range(1, 9):
            scenario = Scenario.from_preset("market", seed=seed, data_size=UNEQUAL, model=model)
            environment = scenario.environment()
            for scored, found in gains.items():
                contracts = play(environment, Demand(budget=100.0, scored=scored))
                found.append(JointValue.of(environment).gain(contracts))
        assert np.mean(gains[True]) > least * np.mean(gains[False])


@pytest.mark.parametrize("target", [None, 94.0])
def test_with_scores_no_owner_is_asked_more_than_forty_times(target: float | None) -> None:
    environment = Scenario.from_preset(
        "market", owners=60, data_size=UNEQUAL, privacy_cost=CHEAP, K=500
    ).environment()
    auction = ClockAuction(environment, Demand(target=target, scored=True))
    asked, last = np.zeros(60, int), np.full(60, 501)
    while not auction.over:
        assert (auction.prices < last[auction.asked]).all(), "nobody is asked twice about a price"
        last[auction.asked] = auction.prices
        asked[auction.asked] += 1
        auction.hear(np.ones(len(auction.asked), dtype=bool))
    assert asked.max() <= 36


def test_an_owner_with_an_absurd_cost_changes_nobody_else() -> None:
    environment = market("alike", owners=8)
    costs = environment.phases[-1].privacy_cost
    costs[0] = 3.0
    before = play(environment, Demand(budget=20.0))
    costs[0] = 1e9
    after = play(environment, Demand(budget=20.0))
    np.testing.assert_array_equal(after.payment, before.payment)


@pytest.mark.parametrize("target", [80.0, 85.0, 89.0])
def test_a_target_is_met_for_less_money_than_value_alone_would_spend(target: float) -> None:
    environment = Scenario.from_preset("market", seed=2).environment()
    joint = JointValue.of(environment)
    contracts = play(environment, Demand(target=target))
    assert joint.fitted_quality(contracts) >= target
    assert contracts.payment.sum() <= play(environment, Demand()).payment.sum()


def test_a_target_that_needs_no_seller_buys_nothing() -> None:
    environment = Scenario.from_preset("market").environment()
    assert not play(environment, Demand(target=76.0)).signed.any()


def test_owners_who_would_sell_for_nothing_sell_no_more_than_the_target_needs() -> None:
    environment = market("alike", privacy_cost=0.0, owners=20)
    contracts, joint = play(environment, Demand(target=94.0)), JointValue.of(environment)
    assert set(contracts.payment[contracts.signed]) == {1}
    assert joint.fitted_quality(contracts) >= 94.0
    assert 0 < contracts.signed.sum() < 15


def test_a_target_that_cannot_be_reached_is_refused_in_one_sentence() -> None:
    environment = Scenario.from_preset("market").environment()
    with pytest.raises(
        BadInput,
        match=r"market.target_accuracy 99.0 is out of reach, all owners bring at most [\d.]+ % "
        r"with noise 0.1, for up to 1600:",
    ):
        ClockAuction(environment, Demand(target=99.0))
    with pytest.raises(BadInput, match=r"90.0 is out of reach, the 7 owners that would sell"):
        play(environment, Demand(target=90.0))
    few = Scenario.from_preset("market", owners=20, surface="features-mnist").environment()
    with pytest.raises(
        BadInput, match=r"85.0 is out of reach, the one owner that would sell brings"
    ):
        play(few, Demand(target=85.0))


@pytest.mark.parametrize(
    "wrong",
    [
        "budget=-1",
        "budget=nan",
        "budget=inf",
        "floor=nan",
        "budget=much",
        "floor=-0.1",
        "target_accuracy=101",
        "target_accuracy=x",
    ],
)
def test_a_wrong_demand_is_refused_by_its_name(wrong: str) -> None:
    with pytest.raises(BadInput, match=f"^market.{wrong.split('=')[0]} "):
        load_scenario(settings=[wrong])


@pytest.mark.parametrize("floor", [0.6, 0.7, 1e9])
def test_a_floor_that_leaves_nothing_to_sell_is_refused(floor: float) -> None:
    with pytest.raises(BadInput, match=r"market.floor is .* below 0.6"):
        negotiate(Scenario.from_preset("market", floor=floor), mechanism="clock")


@pytest.mark.parametrize(
    ("floor", "steps", "level"),
    [(0.1, 12, 10), (0.11, 12, 10), (0.05, 12, 11), (0.01, 12, 11), (0.0, 12, 12), (0.59, 12, 1),
     (0.1, 2, 1), (0.3, 4, 2)],
)  # fmt: skip
def test_a_floor_is_rounded_to_a_level_that_leaves_some_noise(
    floor: float, steps: int, level: int
) -> None:
    assert floor_level(Levels(saving_levels=steps), floor) == level


@pytest.mark.parametrize("levels", [1, 2, 32, 36, 37, 100, 999, 10_000])
def test_an_owner_is_asked_forty_times_at_most(levels: int) -> None:
    prices = price_levels(levels)
    assert len(prices) <= 36
    assert prices[0] == levels
    assert prices[-1] >= 1
    assert levels > 36 or prices == list(range(levels, 0, -1))


def test_owners_who_would_sell_for_nothing_are_paid_the_lowest_price_within_the_budget() -> None:
    environment = market("alike", privacy_cost=0.0, owners=9)
    contracts = play(environment, Demand(budget=5.0))
    lowest = environment.levels.payments[1]
    assert contracts.signed.sum() == int(5.0 / lowest)
    assert set(contracts.payment[contracts.signed]) == {1}


def test_nobody_sells_to_a_curator_to_whom_it_is_not_worth_it() -> None:
    environment = market("alike", quality_value=1e-6)
    assert not play(environment, Demand()).signed.any()


def test_it_earns_most_of_what_full_knowledge_could() -> None:
    """Over 20 populations; the rest is what owners keep because nobody knows their costs."""
    for budget, least in ((None, 0.85), (100.0, 0.75)):
        parts = []
        for seed in range(1, 21):
            environment = Scenario.from_preset("market", seed=seed).environment()
            demand, joint = Demand(budget=budget), JointValue.of(environment)
            best = joint.gain(best_portfolio(environment, demand))
            parts.append(joint.gain(play(environment, demand)) / best)
        assert np.mean(parts) > least
        assert max(parts) <= 1.0 + 1e-9


def test_a_million_owners() -> None:
    environment = Scenario.from_preset("market", owners=1_000_000, model="cnn").environment()
    contracts = play(environment, Demand(budget=10_000.0))
    assert contracts.signed.any()
    assert environment.levels.payments[contracts.payment].sum() <= 10_000.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_few_sellers_may_be_worth_it_where_one_alone_is_not(seed: int) -> None:
    """The first seller lowers the quality: the mean then rests on few. The clock must not go on."""
    environment = Scenario.from_preset("market", seed=seed).environment()
    contracts = play(environment, Demand(floor=0.0, budget=30.0))
    assert JointValue.of(environment).gain(contracts) > 30.0


def test_a_grid_without_a_level_at_the_floor_is_refused() -> None:
    environment = Scenario.from_preset("market", saving_levels=1).environment()
    with pytest.raises(BadInput, match=r"game\.saving_levels is 1"):
        play(environment, Demand(floor=0.1))
    assert (play(environment, Demand(floor=0.0)).saving <= 1).all()


def test_payments_below_a_micro_unit_are_paid_in_whole_ones() -> None:
    environment = Scenario.from_preset("market", payment_max=1e-9).environment()
    assert not play(environment, Demand(budget=10.0)).signed.any()


def test_one_owner_alone_sells_or_not_by_what_it_is_worth() -> None:
    """What it would bring may be worth its price, or not; either way the job is a fine one."""
    for value, sells in ((2000.0, True), (1e-6, False)):
        environment = market("alike", owners=1, quality_value=value, privacy_cost=0.3)
        assert play(environment, Demand()).signed.any() == sells


def test_where_no_owner_is_willing_nobody_sells() -> None:
    environment = market("alike", privacy_cost=90.0)
    assert not play(environment, Demand()).signed.any()
    with pytest.raises(BadInput, match=r"is out of reach, the 0 owners that would sell"):
        play(environment, Demand(target=93.0))


def test_finer_and_finer_levels_approach_a_limit_at_no_more_questions() -> None:
    """Continuous savings and payments: levels as fine as one likes, 36 questions at most."""
    values = []
    for savings, payments in ((12, 32), (96, 1_280), (192, 2_560), (384, 5_120)):
        gains = []
        for seed in range(1, 6):
            given = {"seed": seed, "J": savings, "K": payments}
            environment = Scenario.from_preset("market", **given).environment()
            gains.append(JointValue.of(environment).gain(play(environment, Demand(budget=100.0))))
        assert len(price_levels(payments)) <= 36
        values.append(np.mean(gains))
    assert values[0] == pytest.approx(values[-1], rel=0.1)
    assert values[1] == pytest.approx(values[-1], rel=0.02)
    assert values[2] == pytest.approx(values[-1], rel=0.02)


def test_owners_join_and_leave_between_jobs(tmp_path: Path) -> None:
    """Each job is an auction of its own: owners who stay are served by their names and limits."""
    costs = {"anna": 0.3, "bert": 0.35, "carl": 0.4, "dora": 0.5, "emil": 0.7, "fred": 2.0}
    jobs = [list(costs)[:5], ["fred", "anna", "carl", "emil", "dora"]]  # bert leaves, fred joins
    results: dict[str, list[dict[str, tuple[float, float]]]] = {"clock": [], "equilibrium": []}
    for number, names in enumerate(jobs):
        file = tmp_path / f"{number}.csv"
        rows = "".join(f"{name},{costs[name]},600,1,0.2\n" for name in names)
        file.write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
        scenario = Scenario.from_preset("market", file=str(file), model="cnn", budget=40.0)
        for mechanism, found in results.items():
            contracts = negotiate(scenario, mechanism=mechanism).contracts
            found.append({one.owner: (one.saving, one.payment) for one in contracts})
    before, after = results["equilibrium"]
    assert {name: before[name] for name in after if name in before} == {
        name: after[name] for name in before if name in after
    }
    for found in results["clock"]:
        assert sum(payment for _, payment in found.values()) <= 40.0
        sellers = [name for name, (saving, _) in found.items() if saving > 0.0]
        assert len(sellers) >= 2
        assert max(costs[name] for name in sellers) <= min(
            costs[name] for name in found if name not in sellers
        )
        for name in sellers:  # 2.5 x 1.2 x 0.5 / 0.08 is the limit for a unit of cost
            assert found[name][1] >= 18.75 * costs[name]
