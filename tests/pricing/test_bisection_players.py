"""Bisection by messages: the deals of the play in one process, few messages, players restored."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.market.negotiation import run_options
from noisemarket.pricing.bisection import Bisection
from noisemarket.pricing.messages import (
    MOST_MESSAGES,
    CuratorPlayer,
    GameRules,
    OwnerPlayer,
    bisection_rules,
    curator_player,
    owner_player,
)
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

market = partial(Scenario.from_preset, "market", owners=40)


def pair(scenario: Scenario, index: int) -> tuple[OwnerPlayer, CuratorPlayer, GameRules]:
    """The players of one owner and the curator, and the rules that they got."""
    environment, config = scenario.environment(), run_options(scenario).play
    rules = bisection_rules(environment, config)
    rules.check()
    side = environment.owner_side(-1, slice(index, index + 1))
    owner = owner_player(rules, [side], 1, index)
    return owner, curator_player(index, rules, environment, config), rules


def negotiated(scenario: Scenario, index: int) -> tuple[OwnerPlayer, CuratorPlayer]:
    owner, curator, rules = pair(scenario, index)
    while not curator.settled and curator.played < rules.iterations:
        curator.take(owner.answer(curator.draw_quotes(1)))
    return owner, curator


@pytest.mark.parametrize("surface", ["printed", "sharded-mnist", "features-mnist"])
def test_the_deals_of_the_play_in_one_process_in_few_messages(surface: str) -> None:
    scenario = market(surface=surface)
    together = Bisection().run(scenario.environment(), run_options(scenario))
    messages = 0
    for index in range(40):
        owner, curator = negotiated(scenario, index)
        assert curator.settled
        assert curator.played <= 20 < MOST_MESSAGES
        deal = together.contracts.saving[index], together.contracts.payment[index]
        assert owner.deal() == curator.deal() == deal
        messages += curator.played
    assert together.messages == messages / 40


def test_a_thousand_levels_still_take_few_messages() -> None:
    scenario = market(owners=8, surface="sharded-mnist", saving_levels=1_000, payment_levels=1_000)
    for index in range(8):
        _, curator = negotiated(scenario, index)
        assert curator.settled
        assert curator.played <= MOST_MESSAGES


def test_the_same_moves_when_the_owner_is_restored_between_messages() -> None:
    scenario = market(surface="features-mnist")
    for index in range(4):
        straight, _ = negotiated(scenario, index)
        owner, curator, _ = pair(scenario, index)
        while not curator.settled:
            fresh, _, _ = pair(scenario, index)
            fresh.restore({name: np.array(value) for name, value in owner.state().items()})
            curator.take(fresh.answer(curator.draw_quotes(1)))
            owner = fresh
        for name, value in straight.state().items():
            np.testing.assert_array_equal(owner.state()[name], value, err_msg=name)


def test_quotes_and_proposals_that_do_not_fit_are_refused() -> None:
    owner, curator, _ = pair(market(), 0)
    batch = curator.draw_quotes(1)
    other, _, _ = pair(market(saving_levels=5), 0)
    with pytest.raises(BadInput, match="do not fit"):
        other.answer(batch)
    curator.take(owner.answer(batch))
    with pytest.raises(BadInput, match="the next interaction is 1"):
        owner.answer(batch)
