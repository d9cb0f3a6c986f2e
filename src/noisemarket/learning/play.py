"""One pair's whole game in plain Python: what the compiled loop must reproduce exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.learning.draws import Stream
from noisemarket.learning.rule import Rule


@dataclass(frozen=True)
class PlayHistory:
    """What was played: level numbers and rewards, one entry an iteration."""

    offers: IntArray
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
    sees_offer: bool,
    stream: Stream,
    cancelled: BoolArray,
) -> PlayHistory:
    """Let two rules play ``starts[-1]`` iterations.

    The reward tables are ``(phases, savings, payments)``; phase i lasts from iteration
    ``starts[i]`` to ``starts[i + 1]``. The owner's state is the last payment quoted. The curator's
    is the offer before it (``sees_offer``) or the previous one. Each learns as soon as it knows
    its next state: the curator when the next offer has come, so one more offer is made at the end.
    Ends early, and in vain, once ``cancelled[0]`` is True.
    """
    iterations = int(starts[-1])
    offers, quotes = np.zeros(iterations, np.int64), np.zeros(iterations, np.int64)
    owner_got, curator_got = np.zeros(iterations), np.zeros(iterations)
    offer, quote, curator_state = 0, 0, 0
    for t in range(iterations + 1):
        for_owner, for_curator = stream.next()
        new_offer = owner.act(quote, for_owner)
        next_curator_state = new_offer if sees_offer else offer
        if t > 0:
            got = float(curator_got[t - 1])
            curator.learn(curator_state, quote, got, next_curator_state, t - 1)
        if t == iterations or cancelled[0]:
            break
        phase = int(np.searchsorted(starts, t, side="right")) - 1
        offer, curator_state = new_offer, next_curator_state
        new_quote = curator.act(curator_state, for_curator)
        owner_got[t] = owner_rewards[phase, offer, new_quote]
        curator_got[t] = curator_rewards[phase, offer, new_quote]
        owner.learn(quote, offer, float(owner_got[t]), new_quote, t)
        quote = new_quote
        offers[t], quotes[t] = offer, quote
    return PlayHistory(offers, quotes, owner_got, curator_got)
