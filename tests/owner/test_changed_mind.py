"""An owner that changes its numbers in the middle of a negotiation: its next answer is by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.owner.test_clock_record import CLOCKS, OWN, agent

from noisemarket.files import write_json
from noisemarket.ledger.keys import PRIVATE
from noisemarket.market.negotiation import negotiate, run_options
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.invitations import GameInvitation
from noisemarket.pricing.messages import (
    CuratorPlayer,
    GameRules,
    bisection_rules,
    curator_player,
    game_rules,
)
from noisemarket.scenario import Scenario


def market(cost: float, **more: object) -> Scenario:
    """One owner with the numbers that its agent has."""
    own = {"privacy_cost": cost, "markup": OWN["markup"]}
    return Scenario.from_preset("market", owners=1, surface="sharded-mnist", **own, **more)


def invited(scenario: Scenario, rule: str) -> tuple[GameInvitation, CuratorPlayer]:
    environment, config = scenario.environment(), run_options(scenario).play
    table: GameRules = (
        bisection_rules(environment, config)
        if rule == "bisection"
        else game_rules(environment, rule, config, config.interactions_per_message)
    )
    curator = curator_player(0, table, environment, config)
    return GameInvitation("job", "ab" * 32, {"simulated": False}, 0, table), curator


def changed(anna: OwnerAgent, cost: float) -> OwnerAgent:
    """The next process of the same owner, with another cost in its file."""
    write_json(anna.folder.path / PRIVATE, anna.folder.private() | {"privacy_cost": cost})
    return OwnerAgent(anna.folder)


def exchange(anna: OwnerAgent, invitation: GameInvitation, curator: CuratorPlayer) -> None:
    length = invitation.table.interactions_per_message
    curator.take(anna.answer(invitation, curator.draw_quotes(length)))


def test_in_a_clock_it_leaves_at_a_price_at_which_it_would_have_stayed(tmp_path: Path) -> None:
    anna = agent(tmp_path)
    assert anna.stay(CLOCKS, 30)
    anna = changed(anna, 2 * OWN["privacy_cost"])
    assert not anna.stay(CLOCKS, 29)


@pytest.mark.parametrize("factor", [0.7, 1.6])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_bisection_ends_in_the_deal_of_its_new_numbers(
    tmp_path: Path, factor: float, after: int
) -> None:
    cost = OWN["privacy_cost"]
    invitation, curator = invited(market(cost), "bisection")
    anna = agent(tmp_path)
    for _ in range(after):
        exchange(anna, invitation, curator)
    assert not curator.settled
    anna = changed(anna, factor * cost)
    while not curator.settled and curator.played < invitation.table.iterations:
        exchange(anna, invitation, curator)
    exact = negotiate(market(factor * cost), mechanism="equilibrium").agreement.contracts
    assert curator.deal() == (exact.saving[0], exact.payment[0])
    assert exact.saving[0] > 0


@pytest.mark.slow
def test_a_learner_signs_nothing_below_its_new_limit(tmp_path: Path) -> None:
    scenario = market(OWN["privacy_cost"], iterations=400, interactions_per_message=50)
    invitation, curator = invited(scenario, "wolf_phc")
    anna = agent(tmp_path, seed=3)
    for _ in range(4):
        exchange(anna, invitation, curator)
    dear = 3 * OWN["privacy_cost"]
    anna, signs = changed(anna, dear), market(dear).environment().owner_side().signs()[0]
    traded = 0
    for _ in range(4):
        batch = curator.draw_quotes(50)
        reply = anna.answer(invitation, batch)
        quotes = batch.quotes[np.arange(50), reply.proposals]
        assert signs[reply.proposals, quotes][reply.signed].all()
        traded += int((reply.signed & (reply.proposals > 0)).sum())
        curator.take(reply)
    assert traded > 0
