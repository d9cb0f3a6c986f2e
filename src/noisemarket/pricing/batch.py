"""Plays a batch of pairs under one rule: compiled where the rule has a compiled form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray
from noisemarket.game.protocol import Games
from noisemarket.pricing.compiled.arguments import (
    CLIMBING,
    EXPLORING,
    FIXED,
    Batch,
    GameArrays,
    LoopSettings,
    Scratch,
)
from noisemarket.pricing.draws import Stream
from noisemarket.pricing.greedy import Greedy
from noisemarket.pricing.lanes import LANES
from noisemarket.pricing.play import PlayHistory, play_pair
from noisemarket.pricing.q_learning import QLearning
from noisemarket.pricing.rule import Rule, Settings
from noisemarket.pricing.rules import find_rule
from noisemarket.pricing.wolf_phc import PHC, WolfPHC

LARGEST_REWARD = 1e100
"""Beyond it, sums of rewards might reach the sentinel that fills unused lanes."""

COMPILED: dict[type[Rule], int] = {
    WolfPHC: CLIMBING,
    PHC: CLIMBING,
    QLearning: EXPLORING,
    Greedy: FIXED,
}
"""Rules that the compiled loop knows; any other is played by its plain file, only slower."""


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
    kind = find_rule(rule)
    for games in phases:
        _check_tables(games)
    firsts = first_values(kind, phases[0], config)
    live = [i for i, start in enumerate(starts) if start < config.iterations]
    phases = [phases[i] for i in live]
    bounds = np.array([*(starts[i] for i in live), config.iterations], dtype=np.int64)
    ended = np.zeros(1, np.bool_) if cancelled is None else cancelled
    if config.compiled and kind in COMPILED:
        from numba.core import config as numba_config  # slow to import, and few commands learn

        if not numba_config.DISABLE_JIT:
            return _play_compiled(kind, config, phases, bounds, keys, firsts, ended)
    return _play_plainly(kind, config, phases, bounds, keys, firsts, ended)


def _check_tables(games: Games) -> None:
    """Refuse rewards that the compiled tables could not tell from their padding."""
    tables = (games.owner_rewards, games.curator_rewards, games.owner_hopes, games.curator_hopes)
    for table in tables:
        largest = float(np.abs(table).max(initial=0.0))
        if not largest <= LARGEST_REWARD:
            raise BadInput("payoffs", largest, f"payoffs must not exceed {LARGEST_REWARD:g}.")


def _empty(config: PlayConfig, games: Games) -> Batch:
    pairs, savings, payments = games.owner_rewards.shape
    return Batch(
        counts=np.zeros((config.blocks, 5), np.int64),
        payoffs=np.zeros((config.blocks, 2)),
        deals=np.zeros((pairs, 2), np.int64),
        last=np.zeros((pairs, 2), np.int64),
        owner_policies=np.empty((pairs, payments, savings)),
        curator_policies=np.empty((pairs, savings, payments)),
    )


def _play_compiled(
    kind: type[Rule],
    config: PlayConfig,
    phases: Sequence[Games],
    bounds: IntArray,
    keys: KeyArray,
    firsts: tuple[FloatArray, FloatArray],
    cancelled: BoolArray,
) -> Batch:
    from noisemarket.pricing.compiled.loop import play_all
    from noisemarket.pricing.compiled.simd import GROUP

    output = _empty(config, phases[0])
    _, savings, payments = phases[0].owner_rewards.shape
    settings = config.settings if kind is not PHC else replace(config.settings, lose_ratio=1.0)
    rows = savings + payments
    width = (-(-savings // LANES) * payments + -(-payments // LANES) * savings) * GROUP
    play_all(
        GameArrays(
            keys=np.ascontiguousarray(keys),
            starts=bounds,
            owner_rewards=np.stack([games.owner_rewards for games in phases], axis=1),
            curator_rewards=np.stack([games.curator_rewards for games in phases], axis=1),
            agreed=np.stack([games.agreed for games in phases], axis=1),
            owner_first=firsts[0],
            curator_first=firsts[1],
        ),
        LoopSettings(
            family=COMPILED[kind],
            sees_proposal=phases[0].sees_proposal,
            seed=np.uint64(config.seed),
            **vars(settings),
            trace_every=config.trace_every,
            window=_window(config, bounds),
        ),
        output,
        Scratch(
            tables=_aligned(width),
            rows=np.empty((3, rows), np.int64),
            best_values=np.empty(rows),
            seen=np.empty((savings, payments), np.int64),
            cancelled=cancelled,
        ),
    )
    return output


def _window(config: PlayConfig, bounds: IntArray) -> int:
    """Iterations that a contract is read from: none from before the last change."""
    return int(min(config.window, bounds[-1] - bounds[-2]))


def _aligned(length: int) -> FloatArray:
    """Memory that starts on a cache line, so that no vector of the tables straddles two."""
    memory = np.empty(length + LANES)
    offset = (-memory.ctypes.data % 64) // memory.itemsize
    return memory[offset : offset + length]


def _play_plainly(
    kind: type[Rule],
    config: PlayConfig,
    phases: Sequence[Games],
    bounds: IntArray,
    keys: KeyArray,
    firsts: tuple[FloatArray, FloatArray],
    cancelled: BoolArray,
) -> Batch:
    output = _empty(config, phases[0])
    for n, key in enumerate(keys):
        owner = kind(firsts[0][n], config.settings)
        curator = kind(firsts[1][n], config.settings)
        history = play_pair(
            owner,
            curator,
            np.stack([games.owner_rewards[n] for games in phases]),
            np.stack([games.curator_rewards[n] for games in phases]),
            bounds,
            sees_proposal=phases[0].sees_proposal,
            stream=Stream(config.seed, int(key)),
            cancelled=cancelled,
        )
        if cancelled[0]:
            return output
        agreed = np.stack([games.agreed[n] for games in phases])
        _record(output, n, history, agreed, bounds, config)
        output.owner_policies[n], output.curator_policies[n] = owner.policy(), curator.policy()
    return output


def _record(
    output: Batch,
    n: int,
    history: PlayHistory,
    agreed: BoolArray,
    bounds: IntArray,
    config: PlayConfig,
) -> None:
    """Enter one pair's history into a batch, as the compiled loop does while it plays."""
    j, k = history.proposals, history.quotes
    phase = np.searchsorted(bounds, np.arange(len(j)), side="right") - 1
    deal = agreed[phase, j, k]
    block = np.arange(len(j)) // config.trace_every
    signed = deal & (j + k > 0)
    for column, series in enumerate((j, k, j * deal, k * deal, signed)):
        np.add.at(output.counts[:, column], block, series)
    np.add.at(output.payoffs[:, 0], block, history.owner_rewards)
    np.add.at(output.payoffs[:, 1], block, history.curator_rewards)
    window = _window(config, bounds)
    late = slice(len(j) - window, None)
    output.last[n] = j[-1], k[-1]
    seen = np.zeros(agreed.shape[1:], np.int64)
    np.add.at(seen, (j[late], k[late]), 1)
    seen[~agreed[-1]] = 0
    seen[0, 0] = 0
    if 2 * seen.sum() >= window:
        output.deals[n] = np.unravel_index(seen.argmax(), seen.shape)
