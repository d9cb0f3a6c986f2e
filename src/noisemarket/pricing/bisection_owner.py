"""The owner's side of ``bisection``: it proposes what is best for it, of what it can sell.

An owner knows that a curator who bisects will end at the least for which it signs. So it values
each proposal at that payment, and makes the best proposal of those for which the curator may pay as
much. It believes that the curator pays any amount, until it hears otherwise: a quote that it
refuses and that is then repeated is the curator's limit. Curators pay no more for less: the limit
counts for all smaller proposals, too. A proposal whose limit is below what the owner wants is
dropped.

Preferences change. What the owner itself wants it knows at once. That a curator would pay more by
now it hears only if it asks: now and then, every ``ASKS_AFTER`` interactions, it makes the best
proposal of those that it has dropped. A quote above the limit then says that the curator has
changed, and all limits are forgotten.

These functions are compiled by ``compiled/bisection_loop.py`` as they stand here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisemarket.game.equilibrium import TOLERANCE
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.sides import OwnerSide
from noisemarket.pricing.bisection_curator import PATIENCE, UNKNOWN

ASKS_AFTER = PATIENCE + 6
"""Interactions until the owner asks for more. The curator's patience is another: if both tried
something in the same interaction every time, neither would ever learn from it."""

STEADY, BEST, PROPOSAL, QUOTE = range(4)
"""What ``OwnerBeliefs.notes`` holds: interactions since the owner last asked for more; its best
proposal, -1 if it must be found anew; the last proposal, -1 if it was signed, and its quote."""


class OwnerBeliefs(NamedTuple):
    """What the owner believes of the curator: the most that it pays, per proposal (a saving
    level)."""

    limits: IntArray
    notes: IntArray


class Wants(NamedTuple):
    """What an owner wants, per proposal: the lowest payment level that it signs, and what it gains
    then; minus infinity where it signs none."""

    reserves: IntArray
    gains: FloatArray


def wants_of(side: OwnerSide) -> Wants:
    """What the owners of a side want, one row each."""
    reserves, highest = side.asks(), side.levels.payment_levels
    gains = side.gains_at(np.minimum(reserves, highest))
    return Wants(reserves, np.where(reserves > highest, -np.inf, gains))


def owner_beliefs(proposals: int) -> OwnerBeliefs:
    """Before the first interaction."""
    beliefs = OwnerBeliefs(np.empty(proposals, np.int64), np.empty(4, np.int64))
    begin_owner(beliefs)
    return beliefs


def begin_owner(beliefs: OwnerBeliefs) -> None:
    """Believe that the curator pays anything."""
    beliefs.limits[:] = UNKNOWN
    beliefs.notes[:] = -1
    beliefs.notes[STEADY] = 0


def make_proposal(beliefs: OwnerBeliefs, wants: Wants) -> int:
    """The saving level to propose now; 0 if none pays."""
    notes = beliefs.notes
    if notes[BEST] < 0:
        notes[BEST] = best_proposal(beliefs.limits, wants, False)
    if notes[STEADY] >= ASKS_AFTER:
        better = best_proposal(beliefs.limits, wants, True)
        if better > 0 and wants.gains[better] > wants.gains[notes[BEST]]:
            return better
    return int(notes[BEST])


def best_proposal(limits: IntArray, wants: Wants, dropped: bool) -> int:
    """The proposal with the highest gain, of those that are dropped or not; 0 if none gains."""
    largest = 0.0
    for proposal in range(1, len(limits)):
        if wants.gains[proposal] > largest:
            largest = wants.gains[proposal]
    best, highest = 0, TOLERANCE * largest  # closer gains are equal: the smaller saving
    for proposal in range(1, len(limits)):
        gain = wants.gains[proposal]
        if (wants.reserves[proposal] > limits[proposal]) == dropped and gain > highest:
            best, highest = proposal, gain + TOLERANCE * largest
    return best


def hear_quote(
    beliefs: OwnerBeliefs, wants: Wants, proposal: int, quoted: int, signed: bool
) -> None:
    """Take in what the curator quoted for a proposal, and whether both signed."""
    limits, notes = beliefs.limits, beliefs.notes
    notes[STEADY] = 0 if notes[STEADY] >= ASKS_AFTER else notes[STEADY] + 1
    if quoted > limits[proposal]:
        for any_proposal in range(len(limits)):
            limits[any_proposal] = UNKNOWN
        notes[BEST] = -1
    again = notes[PROPOSAL] == proposal and notes[QUOTE] == quoted
    notes[PROPOSAL], notes[QUOTE] = proposal, quoted
    if signed:
        notes[PROPOSAL] = -1
    elif again:
        # Where the owner would have signed, it was the curator who did not.
        most = quoted if quoted < wants.reserves[proposal] else quoted - 1
        for smaller in range(1, proposal + 1):
            limits[smaller] = min(limits[smaller], most)
        notes[BEST] = -1
