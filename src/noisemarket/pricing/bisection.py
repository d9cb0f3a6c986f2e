"""Bisection: the paper's signed game, played by two sides that know it is monotone.

The curator finds the least that an owner signs for its proposal. For each proposal it remembers the
highest quote that the owner refused and the lowest that it signed. An owner wants no less for more:
if it refuses a payment for a saving, it refuses less money for it, and the same money for a larger
saving; if it signs, it signs more money for it, and the same money for a smaller saving. So one
answer counts for many proposals and quotes. The first quote for a proposal is the most that it is
worth to the curator. Once the owner has signed one, the curator bisects between the highest refused
and the lowest signed, until these are neighbours: the lower end is refused, the upper one stands.

The owner knows that a curator who bisects ends at the least for which it signs. So it values each
proposal at that payment, and makes the best proposal of those for which the curator may pay as
much. It believes that the curator pays any amount, until it hears otherwise: a quote that it
refuses and that is then repeated is the curator's limit. Curators pay no more for less: the limit
counts for all smaller proposals, too. A proposal whose limit is below what the owner wants is
dropped.

Preferences change. An owner that refuses what it has signed, or signs what it has refused, has
changed: the curator forgets what contradicts it. An owner that would take less by now never says
so: after ``PATIENCE`` signatures the curator tries one level less than what stands. That a curator
would pay more by now the owner hears only if it asks: every ``ASKS_AFTER`` interactions it makes
the best proposal of those that it has dropped. A quote above the limit then says that the curator
has changed, and all limits are forgotten.

Both sides are plain functions; for whole populations they are compiled as they stand here. The
contract of a pair is what it signed last. Proposals, quotes and signatures are the mechanism's own:
``game.protocol`` decides only what payoffs are counted from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.environment import Environment
from noisemarket.game.equilibrium import TOLERANCE
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.game.protocol import Contracts
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing.mechanism import Agreement, Mechanism, PlayConfig, RunOptions
from noisemarket.pricing.messages import (
    MOST_MESSAGES,
    CuratorPlayer,
    OwnerPlayer,
    State,
    bisection_rules,
    play_by_quotes,
)
from noisemarket.pricing.totals import (
    DEALS,
    PAYMENTS,
    PROPOSALS,
    QUOTES,
    SAVINGS,
    PlayTotals,
    batches,
    work_through,
)

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


class BisectionOwner(OwnerPlayer):
    """The player of the only owner of a side, in a bisection: one interaction a message.

    The curator sends what it would quote for every proposal; the owner makes one, and says whether
    it signs. The negotiation is over when a deal stands, after some 20 messages at most.
    """

    def __init__(self, side: OwnerSide, window: int) -> None:
        super().__init__(side.levels.shape, window)
        every = wants_of(side)
        self._wants = Wants(every.reserves[0], every.gains[0])
        self._beliefs = owner_beliefs(self._shape[0])

    def deal(self) -> tuple[int, int]:
        return self.deals.last()

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
        self._beliefs.notes[BEST] = -1  # the owner may want something else by now


class BisectionCurator(CuratorPlayer):
    """The curator's player against the only owner of a side."""

    def __init__(self, side: CuratorSide, window: int) -> None:
        super().__init__(side.levels.shape, window)
        self._limits = side.limits()[0]
        self._beliefs = curator_beliefs(self._shape[0])

    def deal(self) -> tuple[int, int]:
        return self.deals.last()

    def _draw(self, interactions: int) -> tuple[IntArray, BoolArray]:
        proposals = range(self._shape[0])
        row = np.array([quote(self._beliefs, self._limits, proposal) for proposal in proposals])
        quotes = np.tile(row, (interactions, 1))
        return quotes, quotes <= self._limits

    def _hear(self, proposal: int, quote: int, signed: bool) -> None:
        if quote <= self._limits[proposal]:
            hear_answer(self._beliefs, proposal, quote, signed)
        self.settled = signed and stands(self._beliefs, proposal, quote)


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


def _repeats(curator: CuratorBeliefs, owner: OwnerBeliefs, proposal: int, most: int) -> int:
    """How often a deal that stands is signed again before a side tries something; counts them."""
    times = min(most, ASKS_AFTER - owner.notes[STEADY])
    if proposal > 0:
        times = max(0, min(times, PATIENCE - curator.steady[0]))  # a price of 0 is not tried below
        curator.steady[0] += times
    owner.notes[STEADY] += times
    return int(times)


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


def bargain_all(
    games: BargainArrays,
    base: FloatArray,
    trace_every: int,
    curator: CuratorBeliefs,
    owner: OwnerBeliefs,
    output: Bargains,
) -> None:
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


@cache
def compiled_loop() -> Callable[..., None]:
    """``bargain_all`` as compiled code, of these very functions."""
    from numba.extending import register_jitable  # slow to import, and most markets do not need it

    from noisemarket.pricing.learning import compiled

    for function in (
        *(begin_curator, quote, hear_answer, stands),
        *(begin_owner, make_proposal, best_proposal, hear_quote, _repeats, _note),
    ):
        register_jitable(function)
    return cast(Callable[..., None], compiled(bargain_all))


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
    play = compiled_loop() if config.compiled else bargain_all
    play(arrays, base, config.trace_every, curator_beliefs(savings), owner_beliefs(savings), output)
    return output


class Bisection(Mechanism):
    """Each proposal at the least that its owner signs, found by bisection, owner by owner."""

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        if options.asker is not None:
            rules = bisection_rules(environment, options.play)
            return play_by_quotes(environment, rules, options.asker, options)
        compiled_loop()  # here, before threads want it
        config, asked = options.play, 0
        slices = batches(len(environment), config.iterations, environment.levels.shape[0])
        totals = PlayTotals(environment, options, slices)
        work = work_through(
            slices, lambda some: _play(environment, config, some), options.threads, options.stop
        )
        for number, played in work:
            saving, payment = played.deals.T
            agreed = Contracts(saving.copy(), payment.copy(), saving + payment > 0)
            asked += int(_messages(played, config).sum())
            totals.enter(number, agreed, played.counts, played.payoffs)
        count = max(int(totals.done.sum()), 1)
        return Agreement(totals.contracts, totals.done, totals.trace(), messages=asked / count)


def _messages(played: Bargains, config: PlayConfig) -> IntArray:
    """Messages after which each pair is done by messages: a deal stands, or there are no more."""
    most = min(config.iterations, MOST_MESSAGES)
    return np.minimum(np.where(played.settled > 0, played.settled, most), most)


def _play(environment: Environment, config: PlayConfig, some: slice) -> Bargains:
    phases = range(len(environment.phases))
    return bargain_batch(
        config,
        [environment.owner_side(phase, some) for phase in phases],
        [environment.curator_side(phase, some) for phase in phases],
        [phase.start for phase in environment.phases],
        over_no_trade=environment.protocol == "signed",
    )
