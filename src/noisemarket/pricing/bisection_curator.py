"""The curator's side of ``bisection``: it finds the least that an owner signs for what it proposes.

For each proposal it remembers the highest quote that the owner refused and the lowest that it
signed. Owners want no less for more: who refuses a payment for a saving refuses less money for it,
and the same money for a larger saving; who signs, signs more money for it, and the same money for a
smaller saving. So one answer counts for many proposals and quotes.

The first quote for a proposal is the most that the proposal is worth to the curator. Once the owner
has signed one, the curator bisects between the highest refused and the lowest signed, until these
are neighbours: the lower end is refused, the upper one stands.

Preferences change. An owner that refuses what it has signed, or signs what it has refused, has
changed: what contradicts it is forgotten. An owner that would take less by now never says so.
So after ``PATIENCE`` signatures the curator tries one level less than what stands.

These functions are compiled by ``compiled/bisection_loop.py`` as they stand here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisemarket.game.levels import IntArray

PATIENCE = 25
"""Interactions after which a side tries whether the other has changed."""

UNKNOWN = 1 << 30
"""Above every payment level."""


class CuratorBeliefs(NamedTuple):
    """What the curator believes of one owner, per proposal (a saving level).

    ``refused`` is the highest payment level that the owner refuses, -1 for none; ``signed`` the
    lowest that it signs, ``UNKNOWN`` for none. ``steady[0]`` counts signatures since it last tried
    to pay less than what was signed.
    """

    refused: IntArray
    signed: IntArray
    steady: IntArray


def curator_beliefs(proposals: int) -> CuratorBeliefs:
    """Before the first interaction."""
    beliefs = CuratorBeliefs(*(np.empty(size, np.int64) for size in (proposals, proposals, 1)))
    begin_curator(beliefs)
    return beliefs


def begin_curator(beliefs: CuratorBeliefs) -> None:
    """Believe nothing."""
    beliefs.refused[:] = -1
    beliefs.signed[:] = UNKNOWN
    beliefs.steady[0] = 0


def quote(beliefs: CuratorBeliefs, limits: IntArray, proposal: int) -> int:
    """The payment level quoted for a proposal; ``limits`` are the curator's highest, per proposal.

    It is above the limit only where not even 0 is worth it: the curator then does not sign.
    """
    if proposal == 0:
        return 0
    low, high = int(beliefs.refused[proposal]), int(beliefs.signed[proposal])
    most = int(limits[proposal])
    if high > most:  # nothing that pays is known to be signed
        return max(most, 0)
    if high - low > 1:
        return (low + high) // 2
    if beliefs.steady[0] >= PATIENCE and high > 0:
        return high - 1
    return high


def hear_answer(beliefs: CuratorBeliefs, proposal: int, quoted: int, signs: bool) -> None:
    """Take in whether the owner signs what was quoted for its proposal."""
    refused, signed, steady = beliefs.refused, beliefs.signed, beliefs.steady
    if proposal == 0:
        return
    if quoted < signed[proposal] < UNKNOWN:  # it bisects, or tries less than what stands
        steady[0] = 0
    elif signs:
        steady[0] += 1
    if signs and signed[proposal] != quoted:
        if refused[proposal] >= quoted:
            for any_proposal in range(len(refused)):
                refused[any_proposal] = -1
        for smaller in range(1, proposal + 1):
            signed[smaller] = min(signed[smaller], quoted)
    elif not signs:
        if signed[proposal] <= quoted:
            for any_proposal in range(len(signed)):
                signed[any_proposal] = UNKNOWN
        for larger in range(proposal, len(refused)):
            refused[larger] = max(refused[larger], quoted)


def stands(beliefs: CuratorBeliefs, proposal: int, quoted: int) -> bool:
    """Whether a quote is the least that the owner signs for its proposal, by all that is known."""
    if proposal == 0:
        return True
    return bool(beliefs.signed[proposal] == quoted and beliefs.refused[proposal] >= quoted - 1)
