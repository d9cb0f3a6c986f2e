"""Both sides of ``bisection`` for many pairs, compiled from the very functions that define them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.core import config as numba_config
from numba.extending import register_jitable

from noisemarket.game.jit import cached, stamp_of
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing import bisection
from noisemarket.pricing.batch import PlayConfig
from noisemarket.pricing.bisection import (
    ASKS_AFTER,
    BEST,
    PATIENCE,
    STEADY,
    CuratorBeliefs,
    OwnerBeliefs,
    Wants,
    begin_curator,
    begin_owner,
    best_proposal,
    curator_beliefs,
    hear_answer,
    hear_quote,
    make_proposal,
    owner_beliefs,
    quote,
    stands,
    wants_of,
)
from noisemarket.pricing.learning import DEALS, PAYMENTS, PROPOSALS, QUOTES, SAVINGS

for _function in (
    begin_curator, hear_answer, quote, begin_owner, hear_quote, make_proposal, best_proposal,
    stands,
):  # fmt: skip
    register_jitable(_function)


class BargainArrays(NamedTuple):
    """What both sides of some pairs want, ``(phases, pairs, savings)``, and how long they play.

    ``reserves`` and ``gains`` are the owners' (``Wants``); ``limits`` and ``worth`` are the highest
    payment level that the curator signs for each saving, and what the saving is worth to it.
    ``income`` is what payments are worth to an owner, ``prices[phase]`` what they cost the curator.
    ``starts`` are the first interactions of the phases and, last, the number of interactions.
    """

    starts: IntArray
    reserves: IntArray
    gains: FloatArray
    limits: IntArray
    worth: FloatArray
    income: FloatArray
    prices: FloatArray


class Bargains(NamedTuple):
    """What was played: ``counts`` and ``payoffs`` as in ``Batch``; ``deals`` is what each pair
    signed last since the last change, 0 and 0 for no trade; ``settled`` after how many interactions
    a deal stood for the first time, 0 for never."""

    counts: IntArray
    payoffs: FloatArray
    deals: IntArray
    settled: IntArray


@njit(nogil=True)
def _repeats(curator: CuratorBeliefs, owner: OwnerBeliefs, proposal: int, most: int) -> int:
    """How often a deal that stands is signed again before a side tries something; counts them."""
    times = min(most, ASKS_AFTER - owner.notes[STEADY])
    if proposal > 0:
        times = max(0, min(times, PATIENCE - curator.steady[0]))  # a price of 0 is not tried below
        curator.steady[0] += times
    owner.notes[STEADY] += times
    return times


@njit(nogil=True)
def _note(
    counts: IntArray, block: int, times: int, proposal: int, quoted: int, signed: bool
) -> None:
    """Enter the same interaction, some times, into a block of the trace."""
    counts[block, PROPOSALS] += times * proposal
    counts[block, QUOTES] += times * quoted
    if signed and proposal + quoted > 0:
        counts[block, SAVINGS] += times * proposal
        counts[block, PAYMENTS] += times * quoted
        counts[block, DEALS] += times


def _build(stamp: int) -> Any:
    @cached(nogil=True, error_model="numpy")
    def bargain_all(
        games: BargainArrays,
        base: FloatArray,
        trace_every: int,
        curator: CuratorBeliefs,
        owner: OwnerBeliefs,
        output: Bargains,
    ) -> int:
        """Play all pairs, one after the other; ``curator`` and ``owner`` are memory to play in.

        ``base`` is what both sides of a pair have without a trade, ``(phases, pairs, 2)``.
        """
        deals, every = output.deals, trace_every
        for pair in range(games.reserves.shape[1]):
            begin_curator(curator)
            begin_owner(owner)
            block, next_block = 0, every
            for phase in range(len(games.starts) - 1):
                wants = Wants(games.reserves[phase, pair], games.gains[phase, pair])
                limits, worth = games.limits[phase, pair], games.worth[phase, pair]
                owner.notes[BEST] = -1
                deals[pair, 0], deals[pair, 1] = 0, 0  # nobody is held to what it wanted before
                t, end = games.starts[phase], games.starts[phase + 1]
                while t < end:
                    proposal = make_proposal(owner, wants)
                    quoted = quote(curator, limits, proposal)
                    willing, signs = quoted <= limits[proposal], quoted >= wants.reserves[proposal]
                    signed = willing and signs
                    if willing:
                        hear_answer(curator, proposal, quoted, signs)
                    hear_quote(owner, wants, proposal, quoted, signed)
                    times = 1
                    if signed:
                        deals[pair, 0], deals[pair, 1] = proposal, quoted
                        stood = stands(curator, proposal, quoted)
                        if stood and output.settled[pair] == 0:
                            output.settled[pair] = t + 1
                        if stood and proposal == owner.notes[BEST]:
                            times += _repeats(curator, owner, proposal, end - t - 1)
                    gain, value = base[phase, pair, 0], base[phase, pair, 1]
                    if signed and proposal + quoted > 0:
                        gain += games.income[quoted] - games.income[wants.reserves[proposal]]
                        gain += wants.gains[proposal]
                        value += worth[proposal] - games.prices[phase, quoted]
                    while times > 0:
                        here = min(times, next_block - t)
                        _note(output.counts, block, here, proposal, quoted, signed)
                        output.payoffs[block, 0] += here * gain
                        output.payoffs[block, 1] += here * value
                        t, times = t + here, times - here
                        if t == next_block:
                            block, next_block = block + 1, next_block + every
        return stamp

    return bargain_all


bargain_all = _build(stamp_of(bisection))


def bargain_batch(
    config: PlayConfig,
    owners: Sequence[OwnerSide],
    curators: Sequence[CuratorSide],
    starts: Sequence[int],
    *,
    over_no_trade: bool = True,
) -> Bargains:
    """Play the pairs of these sides; those of index i hold from interaction ``starts[i]`` on.

    Payoffs are counted over no trade, or else in full, as in the simultaneous game. With
    ``config.compiled = False`` the same functions are played as plain Python.
    """
    live = [i for i, start in enumerate(starts) if start < config.iterations]
    wants = [wants_of(owners[i]) for i in live]
    arrays = BargainArrays(
        starts=np.array([*(starts[i] for i in live), config.iterations], dtype=np.int64),
        reserves=np.stack([one.reserves for one in wants]),
        gains=np.stack([one.gains for one in wants]),
        limits=np.stack([curators[i].limits() for i in live]),
        worth=np.stack([curators[i].worth() for i in live]),
        income=owners[0].income(),
        prices=np.stack([curators[i].price() for i in live]),
    )
    _, pairs, savings = arrays.reserves.shape
    base = np.zeros((len(live), pairs, 2))
    if not over_no_trade:
        base[:, :, 0] = [owners[i].base() for i in live]
        base[:, :, 1] = [curators[i].base() for i in live]
    output = Bargains(
        counts=np.zeros((config.blocks, 5), np.int64),
        payoffs=np.zeros((config.blocks, 2)),
        deals=np.zeros((pairs, 2), np.int64),
        settled=np.zeros(pairs, np.int64),
    )
    compiled = config.compiled and not numba_config.DISABLE_JIT
    play = bargain_all if compiled else getattr(bargain_all, "py_func", bargain_all)
    play(arrays, base, config.trace_every, curator_beliefs(savings), owner_beliefs(savings), output)
    return output
