"""How many questions an owner answers."""

from __future__ import annotations

import numpy as np
import pytest

from noisemarket.market.negotiation import negotiate, run_options
from noisemarket.pricing.clock import ClockAuction
from noisemarket.pricing.messages import bisection_rules, curator_player, owner_player
from noisemarket.scenario import Scenario

SCENARIO = Scenario.from_preset(
    "market", owners=12, surface="sharded-mnist", iterations=60, budget=60.0,
    privacy_cost={"distribution": "uniform", "low": 0.2, "high": 2.0},
)  # fmt: skip


@pytest.mark.parametrize("name", ["pac_auction", "csra_auction", "posted_price", "pain_fl"])
def test_a_bid_a_price_or_a_menu_is_one_question(name: str) -> None:
    assert negotiate(SCENARIO, mechanism=name).agreement.messages == 1


@pytest.mark.parametrize(
    "name", ["uniform", "no_dp", "equilibrium", "first_best", "best_portfolio"]
)
def test_where_nobody_is_asked_there_is_no_number(name: str) -> None:
    assert negotiate(SCENARIO, mechanism=name).agreement.messages is None


@pytest.mark.compiled
def test_bisection_counts_what_its_players_say_to_each_other() -> None:
    environment, options = SCENARIO.environment(), run_options(SCENARIO)
    rules, spoken = bisection_rules(environment, options.play), []
    for index in range(len(environment)):
        side = environment.owner_side(-1, slice(index, index + 1))
        owner = owner_player(rules, [side], 1, int(environment.population.key[index]))
        curator = curator_player(index, rules, environment, options.play)
        while not curator.settled and curator.played < rules.iterations:
            curator.take(owner.answer(curator.draw_quotes(1)))
        spoken.append(curator.played)
    counted = negotiate(SCENARIO, mechanism="bisection").agreement.messages
    assert counted == pytest.approx(np.mean(spoken))
    assert len(set(spoken)) > 1


@pytest.mark.compiled
def test_learners_count_interactions_or_the_messages_that_carry_them() -> None:
    assert negotiate(SCENARIO, mechanism="dypp").agreement.messages == 60.0
    carried = SCENARIO.model_copy(
        update={"learning": SCENARIO.learning.model_copy(update={"interactions_per_message": 25})}
    )
    assert negotiate(carried, mechanism="dypp").agreement.messages == 3.0


def test_the_clock_counts_its_answers() -> None:
    auction = ClockAuction(SCENARIO.environment(), run_options(SCENARIO).demand)
    side, answers = SCENARIO.environment().owner_side(), 0
    while not auction.over:
        answers += len(auction.asked)
        auction.hear(side.accepts(auction.saving, auction.price)[auction.asked])
    assert negotiate(SCENARIO, mechanism="clock").agreement.messages == answers / 12
