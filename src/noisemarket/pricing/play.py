"""One pair's whole game in plain Python: what the compiled loop must reproduce exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.pricing.draws import Stream
from noisemarket.pricing.rule import Rule


@dataclass(frozen=True)
class PlayHistory:
    """What was played: level numbers and rewards, one entry an iteration."""

    proposals: IntArray
    quotes: IntArray
    owner_rewards: FloatArray
    curator_rewards: FloatArray


def play_pair(
    owner: Rule,
    curator: Rule,
    owner_rewards: FloatArray,
    curator_rewards: FloatArray,
    starts: IntArray,
    *,
    sees_proposal: bool,
    stream: Stream,
    cancelled: BoolArray,
) -> PlayHistory:
    """Let two rules play ``starts[-1]`` iterations.

    The reward tables are ``(phases, savings, payments)``; phase i lasts from iteration
    ``starts[i]`` to ``starts[i + 1]``. The owner's state is the last payment quoted. The curator's
    is the proposal before it (``sees_proposal``) or the previous one. Each learns as soon as it
    knows its next state: the curator when the next proposal has come, so one more proposal is made
    at the end. Ends early, and in vain, once ``cancelled[0]`` is True.
    """
    iterations = int(starts[-1])
    proposals, quotes = np.zeros(iterations, np.int64), np.zeros(iterations, np.int64)
    owner_got, curator_got = np.zeros(iterations), np.zeros(iterations)
    proposal, quote, curator_state = 0, 0, 0
    for t in range(iterations + 1):
        for_owner, for_curator = stream.next()
        new_proposal = owner.act(quote, for_owner)
        next_curator_state = new_proposal if sees_proposal else proposal
        if t > 0:
            got = float(curator_got[t - 1])
            curator.learn(curator_state, quote, got, next_curator_state, t - 1)
        if t == iterations or cancelled[0]:
            break
        phase = int(np.searchsorted(starts, t, side="right")) - 1
        proposal, curator_state = new_proposal, next_curator_state
        new_quote = curator.act(curator_state, for_curator)
        owner_got[t] = owner_rewards[phase, proposal, new_quote]
        curator_got[t] = curator_rewards[phase, proposal, new_quote]
        owner.learn(quote, proposal, float(owner_got[t]), new_quote, t)
        quote = new_quote
        proposals[t], quotes[t] = proposal, quote
    return PlayHistory(proposals, quotes, owner_got, curator_got)
