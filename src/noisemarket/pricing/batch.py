"""Plays a batch of pairs under one rule: by the compiled loop, or, for a rule of one's own, by the
same loop in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray
from noisemarket.game.protocol import Games
from noisemarket.pricing.draws import GOLDEN, Stream, mix
from noisemarket.pricing.rule import RULES, CompiledRule, Rule, Settings, find_rule

if TYPE_CHECKING:  # Numba is slow to import, and most markets do not learn
    from noisemarket.pricing.learning import Batch, GameArrays, LoopSettings

MOST_POINTS = 20_000
"""Points that the trace of a run has at most."""


def trace_spacing(every: int, iterations: int) -> int:
    """Iterations per point of a trace: a multiple of ``every``, with ``MOST_POINTS`` at most."""
    return every * -(-iterations // (every * MOST_POINTS))


@dataclass(frozen=True)
class PlayConfig:
    """How to play: the rules' numbers, how long, how finely to trace.

    With more than one interaction per message, the game is played as in ``messages``.
    """

    settings: Settings
    iterations: int
    seed: int
    owner_optimism: float = 1.0
    curator_optimism: float = 1.0
    trace_every: int = 50
    window: int = 500
    compiled: bool = True
    interactions_per_message: int = 1

    @property
    def blocks(self) -> int:
        """Points of the trace."""
        return -(-self.iterations // self.trace_every)


def first_values(
    kind: type[Rule], games: Games, config: PlayConfig
) -> tuple[FloatArray, FloatArray]:
    """Both sides' first Q-values: tables over (state, action), one per pair.

    A side that starts from ``optimism`` times the best payoff it can conceive tries every action
    before it settles; one that starts from 0 may lock into whatever it tried first.
    """
    owner_hopes = games.owner_hopes.swapaxes(1, 2)
    owner_best = owner_hopes.max(axis=(1, 2), keepdims=True)
    curator_best = games.curator_hopes.max(axis=(1, 2), keepdims=True)
    return (
        np.ascontiguousarray(kind.first_values(owner_hopes, config.owner_optimism * owner_best)),
        np.ascontiguousarray(
            kind.first_values(games.curator_hopes, config.curator_optimism * curator_best)
        ),
    )


def seeds(play_seed: int) -> tuple[int, int]:
    """The owners' and the curator's seed of a game by messages, where one seed stands for all."""
    return mix(play_seed ^ GOLDEN), mix((play_seed + 1) % 2**64 ^ GOLDEN)


def is_compiled(rule: str | type[Rule]) -> bool:
    """Whether the compiled loop plays a rule, rather than plain Python."""
    return find_rule(rule) in RULES.values()


def play_batch(
    rule: str | type[Rule],
    config: PlayConfig,
    phases: Sequence[Games],
    starts: Sequence[int],
    keys: KeyArray,
    cancelled: BoolArray | None = None,
) -> Batch:
    """Play the games of some owners; phase i holds from iteration ``starts[i]`` on.

    Another thread may set ``cancelled[0]`` to end the play soon; the batch is then worth nothing.
    """
    from noisemarket.pricing.learning import Batch, GameArrays, LoopSettings, play_all

    kind = find_rule(rule)
    firsts = first_values(kind, phases[0], config)
    live = [i for i, start in enumerate(starts) if start < config.iterations]
    bounds = np.array([*(starts[i] for i in live), config.iterations], dtype=np.int64)
    ended = np.zeros(1, np.bool_) if cancelled is None else cancelled
    games = GameArrays(
        keys=np.ascontiguousarray(keys),
        starts=bounds,
        owner_rewards=np.stack([phases[i].owner_rewards for i in live], axis=1),
        curator_rewards=np.stack([phases[i].curator_rewards for i in live], axis=1),
        agreed=np.stack([phases[i].agreed for i in live], axis=1),
        owner_first=firsts[0],
        curator_first=firsts[1],
    )
    per_message = config.interactions_per_message
    by_messages = per_message > 1
    owner_seed, curator_seed = seeds(config.seed) if by_messages else (config.seed,) * 2
    settings = LoopSettings(
        sees_proposal=phases[0].sees_proposal,
        owner_seed=np.uint64(owner_seed),
        curator_seed=np.uint64(curator_seed),
        trace_every=config.trace_every,
        window=int(min(config.window, bounds[-1] - bounds[-2])),
        per_message=per_message if by_messages else 0,
    )
    pairs, _, savings, payments = games.owner_rewards.shape
    output = Batch(
        counts=np.zeros((config.blocks, 5), np.int64),
        payoffs=np.zeros((config.blocks, 2)),
        deals=np.zeros((pairs, 2), np.int64),
        last=np.zeros((pairs, 2), np.int64),
        owner_policies=np.empty((pairs, payments, savings)),
        curator_policies=np.empty((pairs, savings, payments)),
    )
    if config.compiled and is_compiled(kind) and issubclass(kind, CompiledRule):
        play_all(kind.numbers(config.settings), games, settings, output, ended)
        return output
    for n in range(pairs):
        _play_pair(kind, config.settings, games, settings, n, output, ended)
        if ended[0]:
            break
    return output


def _play_pair(
    kind: type[Rule],
    numbers: Settings,
    games: GameArrays,
    settings: LoopSettings,
    n: int,
    output: Batch,
    cancelled: BoolArray,
) -> None:
    """``learning.play_all`` for one pair of players in plain Python."""
    owner = kind(games.owner_first[n], numbers)
    curator = kind(games.curator_first[n], numbers)
    for_owner = Stream(int(settings.owner_seed), int(games.keys[n]))
    for_curator = Stream(int(settings.curator_seed), int(games.keys[n]))
    starts, per_message = games.starts, settings.per_message
    iterations = int(starts[-1])
    moves = np.zeros((iterations, 2), np.int64)
    rewards = np.zeros((iterations, 2))
    phase = np.searchsorted(starts, np.arange(iterations), side="right") - 1
    states: list[int] = []  # the curator's
    proposal, quote, heard = 0, 0, 0

    def hear(state: int) -> None:
        """The curator learns from the interaction before this state."""
        nonlocal heard
        if heard > 0:
            got = float(rewards[heard - 1, 1])
            curator.learn(states[heard - 1], int(moves[heard - 1, 1]), got, state, heard - 1)
        heard += 1

    for t in range(iterations + 1):
        last, proposal = proposal, owner.act(quote, for_owner.for_owner())
        states.append(proposal if settings.sees_proposal else last)
        if per_message == 0:
            hear(states[t])
        if t == iterations or cancelled[0]:
            break
        before, quote = quote, curator.act(states[t], for_curator.for_curator())
        outcome = n, phase[t], proposal, quote
        moves[t] = proposal, quote
        rewards[t] = games.owner_rewards[outcome], games.curator_rewards[outcome]
        owner.learn(before, proposal, float(rewards[t, 0]), quote, t)
        if per_message > 0 and ((t + 1) % per_message == 0 or t + 1 == iterations):
            for state in states[heard:]:
                hear(state)
    _record(output, n, moves, rewards, games.agreed[n][phase, *moves.T], settings)
    output.owner_policies[n], output.curator_policies[n] = owner.policy(), curator.policy()


def _record(
    output: Batch,
    n: int,
    moves: IntArray,
    rewards: FloatArray,
    agreed: BoolArray,
    settings: LoopSettings,
) -> None:
    """Enter one pair's history into a batch, as the compiled loop does while it plays."""
    from noisemarket.pricing.learning import DEALS, PAYMENTS, PROPOSALS, QUOTES, SAVINGS

    saving, payment = moves.T
    block = np.arange(len(moves)) // settings.trace_every
    signed = agreed & (saving + payment > 0)
    for column, series in (
        (PROPOSALS, saving),
        (QUOTES, payment),
        (SAVINGS, saving * agreed),
        (PAYMENTS, payment * agreed),
        (DEALS, signed),
    ):
        np.add.at(output.counts[:, column], block, series)
    np.add.at(output.payoffs, block, rewards)
    output.last[n] = moves[-1]
    window = settings.window
    seen = np.zeros(output.curator_policies.shape[1:], np.int64)
    np.add.at(seen, (saving[-window:], payment[-window:]), signed[-window:].astype(np.int64))
    if 2 * seen.sum() >= window:
        output.deals[n] = np.unravel_index(seen.argmax(), seen.shape)
