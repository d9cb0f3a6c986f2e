"""All rules under the conformance suite; compiled against plain where rows settle and move again;
and rules that a test brings along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.rule_suite import (
    FAST,
    PROTOCOLS,
    MessageConformance,
    RuleConformance,
    Table,
    assert_same_agreement,
    assert_same_play,
    make_table,
    market,
    pick,
    play,
    reversal,
)

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.market.negotiation import negotiate
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.pricing.dypp import Learned, PlayConfig, first_values, play_batch
from noisemarket.pricing.mechanism import RunOptions
from noisemarket.pricing.rule import RULES, Rule, Settings, draw, find_rule
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("rule", RULES)
class TestEveryRule(RuleConformance):
    """Whatever is in ``RULES`` is tested, with nothing to write."""


class TestLongRuns:
    """Rows settle, are no longer climbed, and move again."""

    @pytest.mark.slow
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_settled_rows_move_when_what_paid_begins_to_cost(self, protocol: Any) -> None:
        table = reversal(protocol, 2, (7, 8), at=4_000)
        long = {"iterations": 8_000, "trace_every": 100}
        compiled = play("wolf_phc", table, **long)
        assert_same_play(compiled, play("wolf_phc", table, compiled=False, **long))
        before = play("wolf_phc", table, 4_000)
        assert (before.owner_policies.max(axis=2) == 1.0).any()
        moved = before.owner_policies.argmax(axis=2) != compiled.owner_policies.argmax(axis=2)
        assert (moved & (before.owner_policies.max(axis=2) == 1.0)).any()


class TestByMessages:
    """The loop plays a game by messages as the players on two machines do."""

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("preset", ["market", "paper", "changing"])
    def test_the_same_contracts_as_by_quotes_and_proposals(self, rule: str, preset: str) -> None:
        environment = market(
            "simultaneous" if preset == "paper" else "signed", owners=6, savings=5, payments=9,
            change_at=250 if preset == "changing" else None,
        )  # fmt: skip
        config = PlayConfig(FAST, 400, seed=5, window=100, interactions_per_message=30)
        mechanism = Learned(rule)
        by_loop = mechanism.run(environment, RunOptions(config))
        asker = ArrayAsker(environment, config.seed)
        by_quotes = mechanism.run(environment, RunOptions(config, asker=asker))
        assert by_loop.messages == by_quotes.messages == 14
        for part in ("saving", "payment", "signed"):
            np.testing.assert_array_equal(
                getattr(by_loop.contracts, part), getattr(by_quotes.contracts, part)
            )
        assert rule != "wolf_phc" or preset == "paper" or by_loop.contracts.signed.any()


class TestFirstValues:
    def test_learners_start_from_optimism_times_the_best_they_can_conceive(self) -> None:
        table = make_table("9x8", "signed")
        games = table.phases[0]
        config = PlayConfig(FAST, 1, seed=0, optimism=1.3)
        owner, curator = first_values(RULES["wolf_phc"], games, config)
        assert owner.shape == (3, 8, 9)
        assert curator.shape == (3, 9, 8)
        for n in range(3):
            assert (owner[n] == 1.3 * games.owner_hopes[n].max()).all()
            assert (curator[n] == 1.3 * games.curator_hopes[n].max()).all()

    def test_greedy_starts_from_what_it_hopes_for(self) -> None:
        games = make_table("9x8", "signed").phases[0]
        owner, curator = first_values(RULES["greedy"], games, PlayConfig(FAST, 1, seed=0))
        np.testing.assert_array_equal(owner, games.owner_hopes.swapaxes(1, 2))
        np.testing.assert_array_equal(curator, games.curator_hopes)

    def test_greedy_takes_what_pays_most_at_once(self) -> None:
        # In the paper's game that is to pay nothing; the owner, its loss of the right sign, gives
        # up nothing in return.
        batch = play("greedy", make_table("13x33", "simultaneous"), 20)
        assert not batch.counts[:, :2].any()


class TestTheUsualDeal:
    """The contract of a pair: what it agreed on most often of late."""

    @staticmethod
    def table(agreed: np.ndarray) -> Table:
        zeros = np.zeros((1, *agreed.shape))
        games = make_table("2x2", "signed", pairs=1).phases[0]
        games = replace(
            games, owner_hopes=zeros, curator_hopes=zeros, agreed=agreed[None],
        )  # fmt: skip
        return Table([games], [0], np.array([3], dtype=np.uint64), replace(FAST, exploration=1.0))

    @pytest.mark.parametrize("compiled", [True, False])
    def test_none_if_most_of_the_window_brought_no_deal(self, compiled: bool) -> None:
        # Full exploration: each of the four cells about a quarter of the time.
        one = np.array([[False, False], [False, True]])
        three = np.array([[False, True], [True, True]])
        batch = play("q_learning", self.table(one), 1_000, compiled=compiled)
        assert batch.deals.tolist() == [[0, 0]]
        batch = play("q_learning", self.table(three), 1_000, compiled=compiled)
        assert batch.deals.tolist() != [[0, 0]]

    @pytest.mark.parametrize("compiled", [True, False])
    def test_a_window_longer_than_the_run_is_the_whole_run(self, compiled: bool) -> None:
        table = make_table("9x8", "signed")
        whole, longer = (
            play("wolf_phc", table, 300, window=window, compiled=compiled) for window in (300, 999)
        )
        assert_same_play(whole, longer)


class TestPhases:
    @pytest.mark.parametrize("compiled", [True, False])
    def test_a_change_after_the_end_never_comes(self, compiled: bool) -> None:
        table = make_table("two phases", "signed")
        early = replace(table, starts=[0, 500])
        never = replace(table, phases=table.phases[:1], starts=[0])
        assert_same_play(
            play("wolf_phc", early, 500, compiled=compiled),
            play("wolf_phc", never, 500, compiled=compiled),
        )

    def test_a_change_tells_from_its_first_iteration_on(self) -> None:
        table = make_table("two phases", "signed").some([0])
        once = replace(table, phases=table.phases[:1], starts=[0])
        changed, constant = play("wolf_phc", table, 600), play("wolf_phc", once, 600)
        np.testing.assert_array_equal(changed.counts[:333], constant.counts[:333])
        np.testing.assert_array_equal(changed.counts[333, :2], constant.counts[333, :2])
        assert not np.array_equal(changed.payoffs[333:], constant.payoffs[333:])

    def test_three_phases(self) -> None:
        table = make_table("two phases", "signed")
        first, second = table.phases
        three = replace(table, phases=[first, second, first], starts=[0, 100, 101])
        assert_same_play(play("wolf_phc", three, 400), play("wolf_phc", three, 400, compiled=False))


class AlwaysFirst(Rule):
    """Action 0, come what may."""

    def act(self, state: int, uniform: float) -> int:
        return 0

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        pass

    def policy(self) -> FloatArray:
        rows = np.zeros(self.values.shape)
        rows[:, 0] = 1.0
        return rows


class Exp3(Rule):
    """Exponential weights on what was earned, a little of everything."""

    def __init__(self, first_values: FloatArray, settings: Settings) -> None:
        super().__init__(first_values, settings)
        self.scores = np.zeros(self.values.shape)

    def policy(self) -> FloatArray:
        weights = np.exp(self.scores - self.scores.max(axis=1, keepdims=True))
        share = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(0.9 * share + 0.1 / share.shape[1])

    def act(self, state: int, uniform: float) -> int:
        return draw(self.policy()[state], uniform)

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        self.scores[state, action] += 0.05 * reward / self.policy()[state, action]


class TestARuleOfOnesOwn:
    """One plain class: no compiled code is needed to play it."""

    def test_it_plays_the_whole_mechanism(self) -> None:
        environment = market("signed", owners=5, savings=9, payments=8, change_at=150)
        config = PlayConfig(FAST, iterations=300, seed=3, trace_every=50, window=100)
        alone, crew = (
            Learned(Exp3).run(environment, RunOptions(config, threads=threads))
            for threads in (1, 3)
        )
        assert_same_agreement(alone, crew)
        assert alone.complete
        assert alone.trace is not None
        assert alone.trace.proposal.max() > 0
        assert np.isfinite(alone.owner_exploitability).all()
        assert np.isfinite(alone.curator_exploitability).all()

    def test_a_rule_without_a_trade_makes_no_contract(self) -> None:
        environment = market("signed", owners=3, savings=9, payments=8)
        config = PlayConfig(FAST, iterations=40, seed=3)
        agreement = Learned(AlwaysFirst).run(environment, RunOptions(config))
        assert not agreement.contracts.signed.any()
        assert agreement.trace is not None
        assert not agreement.trace.proposal.any()
        # The curator pays nothing whatever is proposed, so the owner has nothing to gain; but the
        # owner never proposes, so neither has the curator.
        np.testing.assert_allclose(agreement.owner_exploitability, 0, atol=1e-12)
        np.testing.assert_allclose(agreement.curator_exploitability, 0, atol=1e-12)

    def test_it_can_be_negotiated_with(self) -> None:
        scenario = Scenario.from_preset("market", owners=2, J=3, K=2, iterations=100)
        summary = negotiate(scenario, mechanism=Exp3, threads=1).summary()
        assert summary["mechanism"] == "Exp3"
        assert summary["complete"] is True

    def test_it_passes_the_whole_suite(self) -> None:
        suite = RuleConformance()
        for rule in (Exp3, AlwaysFirst):
            suite.test_policies_are_distributions(rule, "signed", "2x2")
            suite.test_seed_and_key_matter_to_rules_that_roll_dice_and_to_no_other(rule, "signed")
            suite.test_reordering_owners_reorders_results(rule, "simultaneous", "two phases")
            by_messages = MessageConformance()
            by_messages.test_both_sides_agree_on_what_was_dealt(rule, "market")
            by_messages.test_the_same_moves_when_the_owner_is_restored_between_messages(rule)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(BadInput, match="rule is sarsa: choose one of: wolf_phc"):
        find_rule("sarsa")
    table = make_table("2x2", "signed")
    with pytest.raises(BadInput, match="sarsa"):
        play_batch("sarsa", PlayConfig(FAST, 10, seed=1), table.phases, table.starts, table.keys)


def test_picking_pairs_keeps_their_games() -> None:
    games = make_table("9x8", "signed").phases[0]
    np.testing.assert_array_equal(pick(games, [2, 0]).owner_rewards, games.owner_rewards[[2, 0]])
