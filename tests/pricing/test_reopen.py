"""DyPP with ``learning.reopen``: players that start anew after a change of preferences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisemarket.game.value import worth
from noisemarket.market.negotiation import run_options
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.pricing.dypp import Learned
from noisemarket.pricing.mechanism import Agreement
from noisemarket.pricing.messages import LearningCurator, curator_player, game_rules, owner_player
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled


def changing(factor: float, half: int, **settings: object) -> Scenario:
    change = {"at": half, "scale": {"privacy_cost": factor}}
    given = {"surface": "printed", "iterations": 2 * half, "changes": [change]} | settings
    return Scenario.from_preset("market", **given)


def played(scenario: Scenario, *, compiled: bool = True, asked: bool = False) -> Agreement:
    environment, options = scenario.environment(), run_options(scenario)
    options = replace(options, play=replace(options.play, compiled=compiled))
    if asked:
        options = replace(options, asker=ArrayAsker(environment, options.play.seed))
    return Learned("wolf_phc").run(environment, options)


def curator_gain(scenario: Scenario) -> float:
    return worth(scenario.environment(), played(scenario).contracts).curator_gain


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_recovers_where_the_printed_form_does_not(factor: float) -> None:
    gains = [curator_gain(changing(factor, 6000, owners=30, reopen=on)) for on in (False, True)]
    assert gains[1] > 1.1 * gains[0]


def test_plain_python_plays_the_same() -> None:
    scenario = changing(0.25, 1500, owners=2, window=100, reopen=True)
    fast, plain = played(scenario), played(scenario, compiled=False)
    for name in ("owner_policies", "curator_policies"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name))
    np.testing.assert_array_equal(fast.contracts.payment, plain.contracts.payment)


def test_messages_end_with_the_same_contracts() -> None:
    scenario = changing(2.0, 1500, owners=6, interactions_per_message=70, window=100, reopen=True)
    fast, asked = played(scenario), played(scenario, asked=True)
    np.testing.assert_array_equal(fast.contracts.saving, asked.contracts.saving)
    np.testing.assert_array_equal(fast.contracts.payment, asked.contracts.payment)


def test_an_owner_that_is_restored_after_its_change_plays_on_alike() -> None:
    scenario = changing(2.0, 200, owners=1, reopen=True)
    environment, config = scenario.environment(), run_options(scenario).play
    rules = game_rules(environment, "wolf_phc", config, 50)
    sides = [environment.owner_side(phase) for phase in (0, 1)]
    owner, curator = owner_player(rules, sides, 1, 2), curator_player(0, rules, environment, config)
    for _ in range(5):
        curator.take(owner.answer(curator.draw_quotes(50)))
    restored = owner_player(rules, sides, 1, 2)
    restored.restore(owner.state())
    quotes = curator.draw_quotes(50)
    np.testing.assert_array_equal(owner.answer(quotes).proposals, restored.answer(quotes).proposals)
    for name, value in owner.state().items():
        np.testing.assert_array_equal(value, restored.state()[name], err_msg=name)


def test_a_curator_starts_anew_only_when_proposals_have_moved_and_not_too_often() -> None:
    scenario = changing(2.0, 2000, owners=1, reopen=True)
    environment, config = scenario.environment(), run_options(scenario).play
    curator = curator_player(
        0, game_rules(environment, "wolf_phc", config, 50), environment, config
    )
    assert isinstance(curator, LearningCurator)
    moved = []
    for t, proposal in enumerate([3] * 1000 + [9] * 1000):
        if curator._has_moved(proposal):
            moved.append(t)
            curator._since = t
        curator.played += 1
    assert len(moved) == 1
    assert 1000 < moved[0] < 1040


def test_the_paper_does_not_reopen() -> None:
    assert Scenario.from_preset("market").learning.reopen
    assert not Scenario.from_preset("paper").learning.reopen
