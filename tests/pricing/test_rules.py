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
    table_of,
)

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.market.negotiation import negotiate
from noisemarket.pricing.batch import COMPILED, PlayConfig, first_values, play_batch
from noisemarket.pricing.compiled import loop
from noisemarket.pricing.compiled.arguments import CLIMBING, Scratch
from noisemarket.pricing.compiled.simd import GROUP, LANES, POLICY, TOTAL
from noisemarket.pricing.compiled.steps import MOVING
from noisemarket.pricing.lanes import draw
from noisemarket.pricing.learned import Learned
from noisemarket.pricing.mechanism import RunOptions
from noisemarket.pricing.rule import Rule, Settings
from noisemarket.pricing.rules import RULES, find_rule
from noisemarket.pricing.wolf_phc import WolfPHC
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("rule", RULES)
class TestEveryRule(RuleConformance):
    """Whatever is in ``RULES`` is tested, with nothing to write."""


class Watched(WolfPHC):
    """The plain rule, which counts how often a pure row becomes mixed again."""

    players: list[Watched]

    def __init__(self, first_values: FloatArray, settings: Settings) -> None:
        super().__init__(first_values, settings)
        self.awakened = 0
        self.players.append(self)

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        pure = self._policy[state].max() == 1.0
        super().learn(state, action, reward, next_state, t)
        self.awakened += bool(pure and self._policy[state].max() < 1.0)


@pytest.fixture
def players(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """The plain WoLF-PHC players made during the test, in order: owner, curator, owner, ..."""
    made: list[Watched] = []
    monkeypatch.setattr(Watched, "players", made, raising=False)
    monkeypatch.setitem(COMPILED, Watched, CLIMBING)
    return made


class TestTheAveragePolicyThatTheCompiledLoopPutsOff:
    """While a row is pure the compiled loop leaves the sum of its policies for later."""

    @pytest.mark.slow
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_long_runs_stay_the_same_to_the_bit(
        self, protocol: Any, players: list[Watched]
    ) -> None:
        # At 4,000 of 8,000 iterations what paid begins to cost, so settled rows must move.
        table = reversal(protocol, 2, (7, 8), at=4_000)
        lengths = {"iterations": 8_000, "trace_every": 100}
        compiled = play(Watched, table, **lengths)
        plain = play(Watched, table, compiled=False, **lengths)
        assert_same_play(compiled, plain)
        awakened = [player.awakened for player in players]
        assert len(players) == 4
        assert min(awakened) >= 1, "rows must settle and move again for this to test anything"

    @pytest.mark.slow
    def test_the_full_game_with_the_papers_steps(self, players: list[Watched]) -> None:
        environment = market("signed", owners=2, change_at=2_500, seed=5)
        table = table_of(environment, Settings())
        compiled = play(Watched, table, 6_000, trace_every=100)
        assert_same_play(compiled, play(Watched, table, 6_000, trace_every=100, compiled=False))

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize("kind", ["9x8", "reversal", "ties"])
    def test_brought_up_to_date_it_is_the_iterated_one(
        self, protocol: Any, kind: str, players: list[Watched], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables: list[tuple[FloatArray, np.ndarray]] = []

        play_all = loop.play_all

        def spied(*arguments: Any) -> Any:
            result = play_all(*arguments)
            scratch: Scratch = arguments[-1]
            tables.append((scratch.tables, scratch.rows))
            return result

        monkeypatch.setattr(loop, "play_all", spied)
        table = make_table(kind, protocol).some([1])
        assert_same_play(play(Watched, table, 2_000), play(Watched, table, 2_000, compiled=False))
        (memory, rows), (owner, curator) = tables[0], players
        assert (rows[2] != MOVING).any(), "some rows must have settled"
        at, row = 0, 0
        for player in (owner, curator):
            states, actions = player.values.shape
            np.testing.assert_array_equal(rows[1, row : row + states], player.count)
            for state in range(states):
                width = -(-actions // LANES) * GROUP
                groups = memory[at : at + width].reshape(-1, GROUP)
                policy, total = (
                    groups[:, part : part + LANES].ravel()[:actions] for part in (POLICY, TOTAL)
                )
                _, visits, settled = rows[:, row]
                if settled != MOVING:
                    total = total + policy * (visits - settled)
                np.testing.assert_allclose(total, player.total[state], rtol=0, atol=1e-9)
                if visits:
                    average = player.total[state] / player.count[state]
                    np.testing.assert_allclose(total / visits, average, rtol=0, atol=1e-12)
                at, row = at + width, row + 1


class TestFirstValues:
    def test_learners_start_from_optimism_times_the_best_they_can_conceive(self) -> None:
        table = make_table("9x8", "signed")
        games = table.phases[0]
        config = PlayConfig(FAST, 1, seed=0, owner_optimism=1.3, curator_optimism=0.5)
        owner, curator = first_values(RULES["wolf_phc"], games, config)
        assert owner.shape == (3, 8, 9)
        assert curator.shape == (3, 9, 8)
        for n in range(3):
            assert (owner[n] == 1.3 * games.owner_hopes[n].max()).all()
            assert (curator[n] == 0.5 * games.curator_hopes[n].max()).all()

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
            games, owner_rewards=zeros, curator_rewards=zeros, owner_hopes=zeros,
            curator_hopes=zeros, agreed=agreed[None],
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
            suite.test_compiled_and_plain_play_the_same_trajectory(rule, "signed", "9x8")
            suite.test_policies_are_distributions(rule, "signed", "2x2")
            suite.test_seed_and_key_matter_to_rules_that_roll_dice_and_to_no_other(rule, "signed")
            suite.test_reordering_owners_reorders_results(rule, "simultaneous", "two phases")
            by_messages = MessageConformance()
            by_messages.test_both_sides_agree_on_what_was_dealt(rule, "market")
            by_messages.test_the_same_moves_when_the_owner_is_restored_between_messages(rule)

    def test_the_suite_objects_to_a_rule_that_is_not_what_it_says(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Sloppy(WolfPHC):
            def step(self, t: int, *, winning: bool) -> float:
                return super().step(t, winning=winning) * (1.0 + 1e-12)

        monkeypatch.setitem(COMPILED, Sloppy, CLIMBING)
        with pytest.raises(AssertionError):
            RuleConformance().test_compiled_and_plain_play_the_same_trajectory(
                Sloppy, "signed", "9x8"
            )


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(BadInput, match="rule is sarsa: choose one of: wolf_phc"):
        find_rule("sarsa")
    table = make_table("2x2", "signed")
    with pytest.raises(BadInput, match="sarsa"):
        play_batch("sarsa", PlayConfig(FAST, 10, seed=1), table.phases, table.starts, table.keys)


def test_only_known_rules_are_compiled() -> None:
    assert set(COMPILED) <= set(RULES.values())


def test_picking_pairs_keeps_their_games() -> None:
    games = make_table("9x8", "signed").phases[0]
    np.testing.assert_array_equal(pick(games, [2, 0]).owner_rewards, games.owner_rewards[[2, 0]])
