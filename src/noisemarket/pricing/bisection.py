"""Bisection: the paper's signed game, played by two sides that know it is monotone.

The curator finds the least that an owner signs for its proposal. For each proposal it remembers the
highest quote that the owner refused and the lowest that it signed. An owner wants no less for more:
if it refuses a payment for a saving, it refuses less money for it, and the same money for a larger
saving; if it signs, it signs more money for it, and the same money for a smaller saving. So one
answer counts for many proposals and quotes. The first quote for a proposal is the most that it is
worth to the curator. Once the owner has signed one, the curator bisects between the highest refused
and the lowest signed, until these are neighbours: the lower end is refused, the upper one stands.

The owner knows that a curator that bisects ends at the least for which it signs. So it values each
proposal at that payment, and makes the best proposal of those for which the curator may pay as
much. It believes that the curator pays any amount, until it hears otherwise: a quote that it
refuses and that is then repeated is the curator's limit. Curators pay no more for less: the limit
counts for all smaller proposals, too. A proposal whose limit is below what the owner wants is
dropped.

An owner that errs may refuse what it has signed, or sign what it has refused: the later answer
counts, and each side forgets what contradicts it.

A pair is done when a deal stands, after some 20 interactions; when preferences change, it bisects
anew. The contract is what was signed last. Both sides are plain functions; for whole populations
they are compiled as they stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.equilibrium import TOLERANCE
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing.mechanism import Agreement, Mechanism, Progress, RunOptions
from noisemarket.pricing.messages import (
    MOST_MESSAGES,
    CuratorPlayer,
    OwnerPlayer,
    State,
    bisection_rules,
    last_deal,
    play_by_quotes,
)

UNKNOWN = 1 << 30
"""Above every payment level."""


class CuratorBeliefs(NamedTuple):
    """What the curator believes of one owner, per proposal (a saving level).

    ``refused`` is the highest payment level that the owner refuses, -1 for none; ``signed`` the
    lowest that it signs, ``UNKNOWN`` for none.
    """

    refused: IntArray
    signed: IntArray


def curator_beliefs(proposals: int) -> CuratorBeliefs:
    """Before the first interaction."""
    return CuratorBeliefs(np.full(proposals, -1), np.full(proposals, UNKNOWN))


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
    return (low + high) // 2 if high - low > 1 else high


def hear_answer(beliefs: CuratorBeliefs, proposal: int, quoted: int, signs: bool) -> None:
    """Take in whether the owner signs what was quoted for its proposal."""
    refused, signed = beliefs.refused, beliefs.signed
    if proposal == 0:
        return
    if signs:
        if refused[proposal] >= quoted:
            refused[:] = -1
        for smaller in range(1, proposal + 1):
            signed[smaller] = min(signed[smaller], quoted)
    else:
        if signed[proposal] <= quoted:
            signed[:] = UNKNOWN
        for larger in range(proposal, len(refused)):
            refused[larger] = max(refused[larger], quoted)


def stands(beliefs: CuratorBeliefs, proposal: int, quoted: int) -> bool:
    """Whether a quote is the least that the owner signs for its proposal, by all that is known."""
    if proposal == 0:
        return True
    return bool(beliefs.signed[proposal] == quoted and beliefs.refused[proposal] >= quoted - 1)


class OwnerBeliefs(NamedTuple):
    """What the owner believes of the curator: the most that it pays, per proposal (a saving level).

    ``last`` is the last proposal, -1 if it was signed, and its quote.
    """

    limits: IntArray
    last: IntArray


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
    """Before the first interaction: the curator pays anything."""
    return OwnerBeliefs(np.full(proposals, UNKNOWN), np.full(2, -1))


def make_proposal(beliefs: OwnerBeliefs, wants: Wants) -> int:
    """The saving level to propose: the one with the highest gain of those for which the curator may
    pay enough; 0 if none gains."""
    largest = wants.gains.max()  # no saving gains 0
    best, highest = 0, TOLERANCE * largest  # closer gains are equal: the smaller saving
    for proposal in range(1, len(beliefs.limits)):
        gain = wants.gains[proposal]
        if wants.reserves[proposal] <= beliefs.limits[proposal] and gain > highest:
            best, highest = proposal, gain + TOLERANCE * largest
    return best


def hear_quote(
    beliefs: OwnerBeliefs, wants: Wants, proposal: int, quoted: int, signed: bool
) -> None:
    """Take in what the curator quoted for a proposal, and whether both signed."""
    limits, last = beliefs.limits, beliefs.last
    if quoted > limits[proposal]:
        limits[:] = UNKNOWN
    again = last[0] == proposal and last[1] == quoted
    last[0], last[1] = -1 if signed else proposal, quoted
    if again and not signed:
        # Where the owner would have signed, it was the curator that did not.
        most = quoted if quoted < wants.reserves[proposal] else quoted - 1
        for smaller in range(1, proposal + 1):
            limits[smaller] = min(limits[smaller], most)


class BisectionOwner(OwnerPlayer):
    """The player of the only owner of a side, in a bisection: one interaction a message."""

    def __init__(self, side: OwnerSide, window: int) -> None:
        super().__init__(side.levels.shape, window)
        every = wants_of(side)
        self._wants = Wants(every.reserves[0], every.gains[0])
        self._beliefs = owner_beliefs(self._shape[0])

    def deal(self) -> tuple[int, int]:
        return last_deal(self.moves)

    def _move(self, quotes: IntArray, signs: BoolArray) -> tuple[int, int, bool]:
        proposal = make_proposal(self._beliefs, self._wants)
        quoted = int(quotes[proposal])
        both = bool(signs[proposal]) and quoted >= int(self._wants.reserves[proposal])
        hear_quote(self._beliefs, self._wants, proposal, quoted, both)
        return proposal, quoted, both

    def _memory(self) -> State:
        return {name: value.copy() for name, value in self._beliefs._asdict().items()}

    def _remember(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        for name, value in self._beliefs._asdict().items():
            value[:] = state[name]


class BisectionCurator(CuratorPlayer):
    """The curator's player against the only owner of a side."""

    def __init__(self, side: CuratorSide, window: int) -> None:
        super().__init__(side.levels.shape, window)
        self._limits = side.limits()[0]
        self._beliefs = curator_beliefs(self._shape[0])

    def deal(self) -> tuple[int, int]:
        return last_deal(self.moves)

    def _draw(self, interactions: int) -> tuple[IntArray, BoolArray]:
        proposals = range(self._shape[0])
        row = np.array([quote(self._beliefs, self._limits, proposal) for proposal in proposals])
        quotes = np.tile(row, (interactions, 1))
        return quotes, quotes <= self._limits

    def _hear(self, proposal: int, quote: int, signed: bool) -> None:
        if quote <= self._limits[proposal]:
            hear_answer(self._beliefs, proposal, quote, signed)
        self.settled = signed and stands(self._beliefs, proposal, quote)


def bargain_all(
    wants: Wants, limits: IntArray, most: int, deals: IntArray, messages: IntArray
) -> None:
    """Play all pairs, each until a deal stands, in ``most`` interactions.

    ``limits`` are the highest payment levels that the curator signs. Enters what was signed last
    into ``deals``, 0 and 0 for no trade, and counts interactions in ``messages``.
    """
    savings = limits.shape[1]
    for pair in range(len(limits)):
        curator, owner = curator_beliefs(savings), owner_beliefs(savings)
        own = Wants(wants.reserves[pair], wants.gains[pair])
        for _ in range(most):
            messages[pair] += 1
            proposal = make_proposal(owner, own)
            quoted = quote(curator, limits[pair], proposal)
            willing, signs = quoted <= limits[pair, proposal], quoted >= own.reserves[proposal]
            if willing:
                hear_answer(curator, proposal, quoted, signs)
            hear_quote(owner, own, proposal, quoted, willing and signs)
            if willing and signs:
                deals[pair, 0], deals[pair, 1] = proposal, quoted
                if stands(curator, proposal, quoted):
                    break


@cache
def compiled_loop() -> Callable[..., None]:
    """``bargain_all`` as compiled code, of these very functions."""
    from numba.extending import register_jitable  # slow to import, and most markets do not need it

    from noisemarket.pricing.learning import compiled

    curator, owner = (curator_beliefs, quote, hear_answer, stands), (owner_beliefs, make_proposal)
    for function in (*curator, *owner, hear_quote):
        register_jitable(function)
    return cast(Callable[..., None], compiled(bargain_all))


class Bisection(Mechanism):
    """Each proposal at the least that its owner signs, found by bisection, owner by owner."""

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        if options.asker is not None:
            rules = bisection_rules(environment, options.play)
            return play_by_quotes(environment, rules, options.asker, options)
        owners, most = len(environment), min(options.play.iterations, MOST_MESSAGES)
        deals, messages = np.zeros((owners, 2), np.int64), np.zeros(owners, np.int64)
        done = np.zeros(owners, dtype=bool)
        for some in environment.slices():
            if options.stop():
                break
            wants = wants_of(environment.owner_side(some=some))
            limits = environment.curator_side(some=some).limits()
            compiled_loop()(wants, limits, most, deals[some], messages[some])
            done[some] = True
            options.watch(Progress(some, _contracts(deals[some]), int(done.sum()), owners))
        asked = float(messages.sum()) / max(int(done.sum()), 1)
        return Agreement(_contracts(deals), done, messages=asked)


def _contracts(deals: IntArray) -> Contracts:
    saving, payment = deals.T
    return Contracts(saving.copy(), payment.copy(), saving + payment > 0)
