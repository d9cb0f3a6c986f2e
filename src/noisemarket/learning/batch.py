"""Plays a batch of pairs under one rule: compiled where the rule has a compiled form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba.core import config
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.game.outcomes import IntArray
from noisemarket.game.protocol import Games
from noisemarket.learning.compiled.loop import play_all
from noisemarket.learning.compiled.simd import GROUP
from noisemarket.learning.compiled.steps import CLIMBING, EXPLORING, FIXED
from noisemarket.learning.draws import Stream
from noisemarket.learning.lanes import LANES
from noisemarket.learning.play import PlayHistory, play_pair
from noisemarket.learning.rule import Rule, Settings
from noisemarket.learning.rules import rule

LARGEST_REWARD = 1e100
"""Beyond it, sums of rewards might reach the sentinel that fills unused lanes."""

COMPILED = {"wolf_phc": CLIMBING, "phc": CLIMBING, "q_learning": EXPLORING, "greedy": FIXED}
"""Rules that the compiled loop knows; any other is played by its plain file, only slower."""


@dataclass(frozen=True)
class PlayConfig:
    """How to play: the rule and its numbers, how long, how finely to trace.

    ``letter`` above 1 plays by post (``post``), with that many interactions in a letter.
    """

    rule: str
    settings: Settings
    iterations: int
    seed: int
    owner_optimism: float = 1.0
    curator_optimism: float = 1.0
    trace_every: int = 50
    window: int = 500
    keep_policies: bool = True
    compiled: bool = True
    letter: int = 1

    @property
    def blocks(self) -> int:
        """Points of the trace."""
        return -(-self.iterations // self.trace_every)


@dataclass(frozen=True)
class Batch:
    """What a batch of pairs played.

    ``counts`` are sums of level numbers over all pairs, a row per block of iterations: offers,
    quotes, then savings, payments and number of deals really made. ``payoffs`` are the sums of the
    owner's and the curator's rewards. Per pair: ``deals`` (usual saving and payment of late, 0 and
    0 for none), ``last`` (saving and payment played last) and both final policies, if kept.
    """

    counts: IntArray
    payoffs: FloatArray
    deals: IntArray
    last: IntArray
    owner_policies: FloatArray
    curator_policies: FloatArray


def first_values(
    kind: type[Rule], games: Games, brief: PlayConfig
) -> tuple[FloatArray, FloatArray]:
    """Both sides' first Q-values: tables over (state, action), one per pair.

    A side that starts from ``optimism`` times the best payoff it can conceive tries every action
    before it settles; one that starts from 0 may lock into whatever it tried first.
    """
    owner_hopes = games.owner_hopes.swapaxes(1, 2)
    owner_best = owner_hopes.max(axis=(1, 2), keepdims=True)
    curator_best = games.curator_hopes.max(axis=(1, 2), keepdims=True)
    return (
        np.ascontiguousarray(kind.first_values(owner_hopes, brief.owner_optimism * owner_best)),
        np.ascontiguousarray(
            kind.first_values(games.curator_hopes, brief.curator_optimism * curator_best)
        ),
    )


def play_batch(
    brief: PlayConfig, phases: Sequence[Games], starts: Sequence[int], keys: NDArray[np.uint64]
) -> Batch:
    """Play the games of some owners; phase i holds from iteration ``starts[i]`` on."""
    kind = rule(brief.rule)
    for games in phases:
        _check_tables(games)
    firsts = first_values(kind, phases[0], brief)
    live = [i for i, start in enumerate(starts) if start < brief.iterations]
    phases = [phases[i] for i in live]
    bounds = np.array([*(starts[i] for i in live), brief.iterations], dtype=np.int64)
    if brief.compiled and brief.rule in COMPILED and not config.DISABLE_JIT:
        return _play_compiled(brief, phases, bounds, keys, firsts)
    return _play_plainly(brief, phases, bounds, keys, firsts)


def _check_tables(games: Games) -> None:
    """Refuse rewards that the compiled tables could not tell from their padding."""
    tables = (games.owner_rewards, games.curator_rewards, games.owner_hopes, games.curator_hopes)
    for table in tables:
        largest = float(np.abs(table).max(initial=0.0))
        if not largest <= LARGEST_REWARD:
            raise BadInput("payoffs", largest, f"let no payoff exceed {LARGEST_REWARD:g}.")


def _empty(brief: PlayConfig, games: Games) -> Batch:
    pairs, savings, payments = games.owner_rewards.shape
    kept = pairs if brief.keep_policies else 0
    return Batch(
        counts=np.zeros((brief.blocks, 5), np.int64),
        payoffs=np.zeros((brief.blocks, 2)),
        deals=np.zeros((pairs, 2), np.int64),
        last=np.zeros((pairs, 2), np.int64),
        owner_policies=np.empty((kept, payments, savings)),
        curator_policies=np.empty((kept, savings, payments)),
    )


def _play_compiled(
    brief: PlayConfig,
    phases: Sequence[Games],
    bounds: IntArray,
    keys: NDArray[np.uint64],
    firsts: tuple[FloatArray, FloatArray],
) -> Batch:
    out = _empty(brief, phases[0])
    _, savings, payments = phases[0].owner_rewards.shape
    settings = brief.settings if brief.rule != "phc" else replace(brief.settings, lose_ratio=1.0)
    rows = savings + payments
    width = (-(-savings // LANES) * payments + -(-payments // LANES) * savings) * GROUP
    play_all(
        COMPILED[brief.rule],
        phases[0].sees_offer,
        np.uint64(brief.seed),
        np.ascontiguousarray(keys),
        bounds,
        np.stack([games.owner_rewards for games in phases], axis=1),
        np.stack([games.curator_rewards for games in phases], axis=1),
        np.stack([games.agreed for games in phases], axis=1),
        *firsts,
        settings.discount,
        settings.learning_rate,
        settings.step_start,
        settings.step_slowing,
        settings.lose_ratio,
        settings.exploration,
        brief.trace_every,
        _window(brief, bounds),
        out.counts,
        out.payoffs,
        out.deals,
        out.last,
        out.owner_policies,
        out.curator_policies,
        _aligned(width),
        np.empty((3, rows), np.int64),
        np.empty(rows),
        np.empty((savings, payments), np.int64),
    )
    return out


def _window(brief: PlayConfig, bounds: IntArray) -> int:
    """Iterations that a contract is read from: none from before the last change."""
    return int(min(brief.window, bounds[-1] - bounds[-2]))


def _aligned(length: int) -> FloatArray:
    """Memory that starts on a cache line, so that no vector of the tables straddles two."""
    memory = np.empty(length + LANES)
    offset = (-memory.ctypes.data % 64) // memory.itemsize
    return memory[offset : offset + length]


def _play_plainly(
    brief: PlayConfig,
    phases: Sequence[Games],
    bounds: IntArray,
    keys: NDArray[np.uint64],
    firsts: tuple[FloatArray, FloatArray],
) -> Batch:
    out, kind = _empty(brief, phases[0]), rule(brief.rule)
    for n, key in enumerate(keys):
        owner = kind(firsts[0][n], brief.settings)
        curator = kind(firsts[1][n], brief.settings)
        history = play_pair(
            owner,
            curator,
            np.stack([games.owner_rewards[n] for games in phases]),
            np.stack([games.curator_rewards[n] for games in phases]),
            bounds,
            sees_offer=phases[0].sees_offer,
            stream=Stream(brief.seed, int(key)),
        )
        agreed = np.stack([games.agreed[n] for games in phases])
        _record(out, n, history, agreed, bounds, brief)
        if brief.keep_policies:
            out.owner_policies[n], out.curator_policies[n] = owner.policy(), curator.policy()
    return out


def _record(
    out: Batch,
    n: int,
    history: PlayHistory,
    agreed: NDArray[np.bool_],
    bounds: IntArray,
    brief: PlayConfig,
) -> None:
    """Enter one pair's history into a batch, as the compiled loop does while it plays."""
    j, k = history.offers, history.quotes
    phase = np.searchsorted(bounds, np.arange(len(j)), side="right") - 1
    deal = agreed[phase, j, k]
    block = np.arange(len(j)) // brief.trace_every
    made = deal & (j + k > 0)
    for column, series in enumerate((j, k, j * deal, k * deal, made)):
        np.add.at(out.counts[:, column], block, series)
    np.add.at(out.payoffs[:, 0], block, history.owner_rewards)
    np.add.at(out.payoffs[:, 1], block, history.curator_rewards)
    window = _window(brief, bounds)
    late = slice(len(j) - window, None)
    out.last[n] = j[-1], k[-1]
    seen = np.zeros(agreed.shape[1:], np.int64)
    np.add.at(seen, (j[late], k[late]), 1)
    seen[~agreed[-1]] = 0
    seen[0, 0] = 0
    if 2 * seen.sum() >= window:
        out.deals[n] = np.unravel_index(seen.argmax(), seen.shape)
