"""What every learning rule must hold, whether it comes with noisemarket or from another package.

A test module gets the suite for a rule of its own like this::

    @pytest.mark.parametrize("rule", [MyRule])
    class TestMine(RuleConformance): ...

    @pytest.mark.parametrize("rule", [MyRule])
    class TestMineByMessages(MessageConformance): ...

The games are small and few, but of every shape that matters to vector code: rows shorter than a
group of eight, exactly one group, one more than two groups, five groups; with and without ties; and
one whose payoffs change while it is played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from noisemarket.game.environment import Environment, Games, Phase, Protocol
from noisemarket.game.levels import SURFACES, Levels
from noisemarket.game.population import Population
from noisemarket.market.negotiation import run_options
from noisemarket.pricing.dypp import Learned, PlayConfig, play_batch
from noisemarket.pricing.learning import Batch
from noisemarket.pricing.mechanism import Agreement, RunOptions
from noisemarket.pricing.messages import (
    CuratorPlayer,
    OwnerPlayer,
    curator_player,
    game_rules,
    owner_player,
)
from noisemarket.pricing.rule import Rule, Settings, find_rule
from noisemarket.scenario import Scenario

AnyRule = str | type[Rule]
SIZES = [(13, 33), (2, 2), (9, 8), (17, 40)]
PROTOCOLS: list[Protocol] = ["signed", "simultaneous"]

SLOW = Settings()
FAST = Settings(learning_rate=0.3, step_start=2.0, step_slowing=25.0, exploration=0.2)
"""Rows become pure within some tens of visits: what the compiled rules treat apart."""

BLUNT = replace(FAST, learning_rate=1.0, discount=0.0)
"""A value is the last reward: of few rewards, many values are equal to the bit."""


@dataclass(frozen=True)
class Table:
    """Pairs to play: the games of each phase, when each begins, and the pairs' keys."""

    phases: Sequence[Games]
    starts: Sequence[int]
    keys: np.ndarray
    settings: Settings

    def some(self, pairs: Sequence[int]) -> Table:
        """The same for some of the pairs, in that order."""
        phases = [pick(games, pairs) for games in self.phases]
        return replace(self, phases=phases, keys=self.keys[list(pairs)])


def pick(games: Games, pairs: Sequence[int]) -> Games:
    """The games of some pairs, in that order."""
    tables = {
        name: one[list(pairs)] for name, one in vars(games).items() if name != "sees_proposal"
    }
    return replace(games, **tables)


def market(
    protocol: Protocol,
    owners: int,
    *,
    savings: int = 13,
    payments: int = 33,
    change_at: int | None = None,
    seed: int = 0,
) -> Environment:
    """A market of owners of various costs; a change makes them dearer and the task worth more."""
    rng = np.random.default_rng([seed, savings, payments])
    cost, beta = rng.uniform(0.2, 2.0, owners), rng.uniform(0.05, 20.0, owners)
    markup = rng.uniform(0.0, 0.4, owners)
    columns = {
        "privacy_cost": cost, "beta": beta, "markup": markup, "data_size": np.full(owners, 600.0)
    }  # fmt: skip
    phases = [Phase(0, cost, markup, beta, 0.6, 0.2, 0.13)]
    if change_at is not None:
        phases.append(Phase(change_at, 2.5 * cost, markup, beta, 0.6, 0.5, 0.13))
    return Environment(
        levels=Levels(0.6, savings - 1, 16.0, payments - 1),
        surface=SURFACES["printed"],
        payoff="privacy_loss",
        protocol=protocol,
        payment_value=0.08,
        privacy_weight=2.5,
        population=Population.of(range(owners), columns),
        phases=tuple(phases),
    )


def table_of(environment: Environment, settings: Settings) -> Table:
    """All pairs of an environment."""
    phases = [environment.games(i) for i in range(len(environment.phases))]
    starts = [phase.start for phase in environment.phases]
    return Table(phases, starts, environment.population.key, settings)


def games_with_ties(protocol: Protocol, pairs: int, shape: tuple[int, int]) -> Games:
    """Payoffs of only three values, so that the best action is rarely the only one."""
    rng = np.random.default_rng([7, *shape])
    owner, curator = rng.integers(-1, 2, (2, pairs, *shape)).astype(float)
    agreed = rng.random((pairs, *shape)) < 0.6
    agreed[:, 0, 0] = True
    if protocol == "simultaneous":
        agreed[:] = True
    return Games(owner, curator, agreed, sees_proposal=protocol == "signed")


def reversal(protocol: Protocol, pairs: int, shape: tuple[int, int], at: int) -> Table:
    """Random payoffs that turn into their opposite: all that had settled has to move."""
    owner, curator = np.random.default_rng([8, *shape]).normal(size=(2, pairs, *shape))
    agreed, sees_proposal = np.ones(owner.shape, dtype=bool), protocol == "signed"
    phases = [Games(sign * owner, sign * curator, agreed, sees_proposal) for sign in (1, -1)]
    return Table(phases, [0, at], np.arange(pairs, dtype=np.uint64), FAST)


def make_table(kind: str, protocol: Protocol, pairs: int = 3) -> Table:
    """A table by the name that the suite is parametrised with."""
    if kind == "ties":
        games = games_with_ties(protocol, pairs, (6, 11))
        keys = np.array([5, 0, (1 << 64) - 1], dtype=np.uint64)
        return Table([games], [0], keys[:pairs], BLUNT)
    if kind == "two phases":
        return table_of(market(protocol, pairs, savings=5, payments=9, change_at=333), FAST)
    if kind == "reversal":
        return reversal(protocol, pairs, (5, 9), at=333)
    savings, payments = map(int, kind.split("x"))
    settings = SLOW if kind == "13x33" else FAST
    return table_of(market(protocol, pairs, savings=savings, payments=payments), settings)


KINDS = [
    *(f"{savings}x{payments}" for savings, payments in SIZES),
    *("two phases", "reversal", "ties"),
]


def play(rule: AnyRule, table: Table, iterations: int, **changes: Any) -> Batch:
    """Play a table; ``changes`` override the configuration."""
    given = PlayConfig(table.settings, iterations, seed=11, trace_every=1, window=200)
    return play_batch(rule, replace(given, **changes), table.phases, table.starts, table.keys)


def assert_same_play(one: Batch, other: Batch) -> None:
    """The same moves and the same policies to the bit; sums of rewards up to their order."""
    for name in ("counts", "deals", "last", "owner_policies", "curator_policies"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_allclose(one.payoffs, other.payoffs, rtol=0, atol=1e-9)


def assert_same_agreement(one: Agreement, other: Agreement) -> None:
    """Two runs that came out alike to the last bit."""
    for part in ("contracts", "trace"):
        for name, value in vars(getattr(one, part)).items():
            np.testing.assert_array_equal(value, getattr(getattr(other, part), name), err_msg=name)
    for name in ("done", "owner_exploitability", "curator_exploitability", "owner_policies",
                 "curator_policies"):  # fmt: skip
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def rolls_dice(rule: AnyRule, settings: Settings) -> bool:
    """Whether what a fresh player does depends on its random number at all."""
    kind = find_rule(rule)
    player = kind(kind.first_values(np.zeros((1, 5)), np.array(1.0)), settings)
    return len({player.act(0, uniform) for uniform in np.linspace(0.0, 0.999, 200)}) > 1


ITERATIONS = 600


def players(
    rule: AnyRule, preset: str = "market", index: int = 0
) -> tuple[OwnerPlayer, CuratorPlayer]:
    """Both players of one pair of a preset, for a game by messages."""
    scenario = Scenario.from_preset(preset, owners=4, iterations=ITERATIONS)
    environment, config = scenario.environment(), run_options(scenario).play
    rules = replace(game_rules(environment, rule, config, 50), window=200)
    one, key = slice(index, index + 1), int(environment.population.key[index])
    return (
        owner_player(rules, [environment.owner_side(-1, one)], 1, key),
        curator_player(index, rules, environment, config),
    )


def exchange(owner: OwnerPlayer, curator: CuratorPlayer, per_message: int, until: int) -> None:
    """Play a pair by messages up to an iteration."""
    while curator.played < until:
        count = min(per_message, until - curator.played)
        curator.take(owner.answer(curator.draw_quotes(count)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
class RuleConformance:
    """The suite; a subclass parametrises it with ``rule``, a name or a class."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_compiled_and_plain_play_the_same_trajectory(
        self, rule: AnyRule, protocol: Protocol, kind: str
    ) -> None:
        table = make_table(kind, protocol)
        for pair in range(len(table.keys)):
            alone = table.some([pair])  # of one pair, traced at every step, counts are its moves
            compiled = play(rule, alone, 600)
            assert_same_play(compiled, play(rule, alone, 600, compiled=False))
            proposals, quotes = compiled.counts[:, 0], compiled.counts[:, 1]
            _, savings, payments = table.phases[0].owner_rewards.shape
            assert proposals.min() >= 0
            assert proposals.max() < savings
            assert quotes.min() >= 0
            assert quotes.max() < payments
            assert (proposals[-1], quotes[-1]) == tuple(compiled.last[0])

    @pytest.mark.parametrize("kind", ["13x33", "two phases"])
    def test_a_batch_is_its_pairs_side_by_side(
        self, rule: AnyRule, protocol: Protocol, kind: str
    ) -> None:
        table = make_table(kind, protocol)
        for compiled in (True, False):
            settings = {"compiled": compiled, "trace_every": 37}
            together = play(rule, table, 400, **settings)
            alone = [play(rule, table.some([pair]), 400, **settings) for pair in range(3)]
            counts = np.sum([one.counts for one in alone], axis=0)
            np.testing.assert_array_equal(together.counts, counts)
            for name in ("deals", "last", "owner_policies", "curator_policies"):
                expected = np.concatenate([getattr(one, name) for one in alone])
                np.testing.assert_array_equal(getattr(together, name), expected, err_msg=name)

    @pytest.mark.parametrize("kind", KINDS)
    def test_rewards_and_counts_are_those_of_the_moves(
        self, rule: AnyRule, protocol: Protocol, kind: str
    ) -> None:
        alone = make_table(kind, protocol).some([0])
        batch = play(rule, alone, 600)
        phase = np.searchsorted(alone.starts, np.arange(600), side="right") - 1
        moves = phase, batch.counts[:, 0], batch.counts[:, 1]
        owner, curator, agreed = (
            np.stack([getattr(games, name)[0] for games in alone.phases])[moves]
            for name in ("owner_rewards", "curator_rewards", "agreed")
        )
        np.testing.assert_array_equal(batch.payoffs, np.stack([owner, curator], axis=1))
        deals = np.stack([moves[1] * agreed, moves[2] * agreed, agreed & (moves[1] + moves[2] > 0)])
        np.testing.assert_array_equal(batch.counts[:, 2:], deals.T)

    @pytest.mark.parametrize("kind", KINDS)
    def test_policies_are_distributions(self, rule: AnyRule, protocol: Protocol, kind: str) -> None:
        batch = play(rule, make_table(kind, protocol), 1_000)
        for policies in (batch.owner_policies, batch.curator_policies):
            assert policies.min() >= 0.0
            np.testing.assert_allclose(policies.sum(axis=2), 1.0, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_longer_run_extends_a_shorter_one(
        self, rule: AnyRule, protocol: Protocol, kind: str
    ) -> None:
        table = make_table(kind, protocol)
        short, long = (play(rule, table, length, trace_every=50) for length in (700, 2_000))
        blocks = len(short.counts)
        assert blocks == 14
        np.testing.assert_array_equal(long.counts[:blocks], short.counts)
        np.testing.assert_array_equal(long.payoffs[:blocks], short.payoffs)

    @pytest.mark.parametrize("kind", ["13x33", "two phases"])
    def test_reordering_owners_reorders_results(
        self, rule: AnyRule, protocol: Protocol, kind: str
    ) -> None:
        table, order = make_table(kind, protocol, pairs=7), [4, 0, 6, 2, 1, 5, 3]
        before, after = play(rule, table, 900), play(rule, table.some(order), 900)
        np.testing.assert_array_equal(after.counts, before.counts)
        np.testing.assert_allclose(after.payoffs, before.payoffs, rtol=0, atol=1e-9)
        for name in ("deals", "last", "owner_policies", "curator_policies"):
            np.testing.assert_array_equal(
                getattr(after, name), getattr(before, name)[order], err_msg=name
            )

    def test_seed_and_key_matter_to_rules_that_roll_dice_and_to_no_other(
        self, rule: AnyRule, protocol: Protocol
    ) -> None:
        table = make_table("13x33", protocol)
        first, again, reseeded = (play(rule, table, 300, seed=seed) for seed in (1, 1, 2))
        renamed = play(rule, replace(table, keys=table.keys + np.uint64(1)), 300, seed=1)
        assert_same_play(first, again)
        for other in (reseeded, renamed):
            same = np.array_equal(first.counts, other.counts)
            assert same is not rolls_dice(rule, table.settings)

    def test_the_number_of_threads_changes_nothing(self, rule: AnyRule, protocol: Protocol) -> None:
        environment = market(protocol, owners=40, savings=9, payments=8, change_at=200)
        config = PlayConfig(FAST, iterations=500, seed=3, trace_every=30, window=100)
        runs = [
            Learned(rule).run(environment, RunOptions(config, threads=threads))
            for threads in (1, 2, 3)
        ]
        assert runs[0].complete
        for run in runs[1:]:
            assert_same_agreement(runs[0], run)


class MessageConformance:
    """The suite of a rule in a game by messages; also parametrised with ``rule``."""

    @pytest.mark.parametrize("preset", ["market", "paper"])
    def test_both_sides_agree_on_what_was_dealt(self, rule: AnyRule, preset: str) -> None:
        owner, curator = players(rule, preset)
        exchange(owner, curator, 100, ITERATIONS)
        assert owner.played == curator.played == ITERATIONS
        assert np.array_equal(owner.moves, curator.moves)
        assert owner.deal() == curator.deal()

    def test_the_same_moves_when_the_owner_is_restored_between_messages(
        self, rule: AnyRule
    ) -> None:
        owner, curator = players(rule)
        exchange(owner, curator, 50, ITERATIONS)
        again, other = players(rule)
        while other.played < ITERATIONS:
            fresh, _ = players(rule)
            fresh.restore({name: np.array(value) for name, value in again.state().items()})
            exchange(fresh, other, 50, other.played + 50)
            again = fresh
        assert np.array_equal(again.moves, owner.moves)
        assert np.array_equal(other.moves, curator.moves)
        for name, value in owner.state().items():
            assert np.array_equal(value, again.state()[name]), name

    def test_acting_everywhere_is_acting_in_each_state(self, rule: AnyRule) -> None:
        owner, curator = players(rule)
        exchange(owner, curator, 50, 200)
        player: Rule = vars(curator)["_rule"]
        uniforms = np.random.default_rng(3).random(40)
        expected = [[player.act(s, float(u)) for s in range(len(player.values))] for u in uniforms]
        assert np.array_equal(player.act_everywhere(uniforms), expected)
