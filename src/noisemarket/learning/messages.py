"""The same game by post: many interactions in one letter, for players on different machines.

Step by step, a pair on two machines would send a message for every move. By post the curator draws
its answers ahead: a sheet with, for each of the next interactions and each state it could be in,
the quote it would make and whether it would sign. The owner plays them through, learning as it
goes, and sends back what it offered and what was signed. Then the curator learns from that. So the
owner cannot choose the curator's luck, and of either side's preferences nothing is written down but
its moves. What the curator learns comes one letter late, which slow learners hardly notice.

The owner's player can be put aside as plain arrays and taken up again, by another process. The
curator's need not: from the replies that came it learns all over again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.learning.draws import Stream
from noisemarket.learning.rule import Rule

BoolArray = NDArray[np.bool_]
Moves = NDArray[np.int64]
State = dict[str, NDArray[np.generic]]

_RULE = "rule."


@dataclass(frozen=True)
class QuoteBatch:
    """The curator's answers to come, ``(interactions, states)``: quotes, and what it would sign."""

    first: int
    quotes: Moves
    signs: BoolArray

    def __len__(self) -> int:
        return len(self.quotes)


@dataclass(frozen=True)
class OfferBatch:
    """What the owner offered in each interaction, and where both signed."""

    first: int
    offers: Moves
    signed: BoolArray

    def __len__(self) -> int:
        return len(self.offers)


@dataclass(frozen=True)
class RecentDeals:
    """The last interactions of a pair: offers, quotes and where both signed."""

    offers: Moves
    quotes: Moves
    signed: BoolArray

    @classmethod
    def none(cls) -> RecentDeals:
        """Before anything was played."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))

    def then(self, offers: Moves, quotes: Moves, signed: BoolArray, window: int) -> RecentDeals:
        """With further ones behind, the last ``window`` of all."""
        return RecentDeals(
            np.concatenate([self.offers, offers])[-window:],
            np.concatenate([self.quotes, quotes])[-window:],
            np.concatenate([self.signed, signed])[-window:],
        )

    def usual(self) -> tuple[int, int]:
        """The saving and payment signed most often, if at least half were signed; else no trade."""
        made = self.signed & (self.offers + self.quotes > 0)
        if not len(made) or 2 * int(made.sum()) < len(made):
            return 0, 0
        shape = int(self.offers.max()) + 1, int(self.quotes.max()) + 1
        seen = np.zeros(shape, np.int64)
        np.add.at(seen, (self.offers[made], self.quotes[made]), 1)
        saving, payment = np.unravel_index(int(seen.argmax()), shape)
        return int(saving), int(payment)


class _Player:
    """What both players keep: a rule, how far they are, the last interactions."""

    def __init__(self, rule: Rule, stream: Stream, *, sees_offer: bool, window: int) -> None:
        self._rule, self._stream = rule, stream
        self._sees_offer, self._window = sees_offer, window
        self.played = 0
        self.deals = RecentDeals.none()


class OwnerPlayer(_Player):
    """The owner's player: it alone knows the owner's rewards and where the owner signs.

    ``rewards`` is what each (saving, payment) is worth if signed; unsigned, nothing changes hands
    and it is worth what no trade is, 0 where rewards are counted over that.
    """

    def __init__(
        self,
        rule: Rule,
        rewards: FloatArray,
        signs: BoolArray,
        stream: Stream,
        *,
        sees_offer: bool,
        window: int,
    ) -> None:
        super().__init__(rule, stream, sees_offer=sees_offer, window=window)
        self._rewards, self._signs = rewards, signs
        self._offer = self._quote = 0

    def answer(self, sheet: QuoteBatch) -> OfferBatch:
        """Play a sheet through, learning on the way."""
        savings, payments = self._rewards.shape
        fits = sheet.quotes.shape == sheet.signs.shape == (len(sheet), savings)
        if sheet.first != self.played:
            raise BadInput("sheet", sheet.first, f"the next interaction is {self.played}.")
        if not fits or not len(sheet) or sheet.quotes.min() < 0 or sheet.quotes.max() >= payments:
            raise BadInput("sheet", str(sheet.quotes.shape), "does not fit this game.")
        offers, quotes, signed = (np.zeros(len(sheet), np.int64) for _ in range(3))
        for i in range(len(sheet)):
            offer = self._rule.act(self._quote, self._stream.next()[0])
            state = offer if self._sees_offer else self._offer
            quote = int(sheet.quotes[i, state])
            both = bool(sheet.signs[i, state]) and bool(self._signs[offer, quote])
            got = float(self._rewards[offer, quote]) if both else 0.0
            self._rule.learn(self._quote, offer, got, quote, self.played)
            self._offer, self._quote = offer, quote
            offers[i], quotes[i], signed[i] = offer, quote, both
            self.played += 1
        self.deals = self.deals.then(offers, quotes, signed.astype(bool), self._window)
        return OfferBatch(sheet.first, offers, signed.astype(bool))

    def state(self) -> State:
        """Everything that changes, as arrays."""
        rule = {_RULE + n: v for n, v in vars(self._rule).items() if isinstance(v, np.ndarray)}
        return {
            **rule,
            "played": np.array([self.played]),
            "stream": np.array(self._stream.state, dtype=np.uint64),
            "offers": self.deals.offers,
            "quotes": self.deals.quotes,
            "signed": self.deals.signed,
            "last": np.array([self._offer, self._quote]),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what ``state`` gave."""
        for name, value in state.items():
            if name.startswith(_RULE):
                setattr(self._rule, name.removeprefix(_RULE), np.array(value))
        self.played = int(state["played"][0])
        self._stream.state = [int(word) for word in state["stream"]]
        moves = np.array(state["offers"], np.int64), np.array(state["quotes"], np.int64)
        self.deals = RecentDeals(*moves, np.array(state["signed"], bool))
        self._offer, self._quote = (int(move) for move in state["last"])


class CuratorPlayer(_Player):
    """The curator's player against one owner: it alone knows the curator's rewards."""

    def __init__(
        self,
        rule: Rule,
        rewards: FloatArray,
        signs: BoolArray,
        stream: Stream,
        *,
        sees_offer: bool,
        window: int,
    ) -> None:
        super().__init__(rule, stream, sees_offer=sees_offer, window=window)
        self._rewards, self._signs = rewards, signs
        self._sheet: QuoteBatch | None = None
        self._pending = (0, 0, 0.0)  # state, quote and reward of the last interaction
        self._offer = 0

    def sheet(self, interactions: int) -> QuoteBatch:
        """Draw the answers to the next interactions. They stand until the reply is taken."""
        if self._sheet is not None:
            return self._sheet
        savings = len(self._rewards)
        uniforms = np.array([self._stream.next()[1] for _ in range(interactions)])
        quotes = self._rule.act_everywhere(uniforms)
        if self._sees_offer:
            signs = self._signs[np.arange(savings)[None, :], quotes]
        else:
            signs = np.ones(quotes.shape, bool)
        self._sheet = QuoteBatch(self.played, quotes, signs)
        return self._sheet

    def take(self, reply: OfferBatch) -> None:
        """Learn from what the owner made of the sheet."""
        sheet = self._sheet
        if sheet is None or reply.first != sheet.first or len(reply) != len(sheet):
            raise BadInput("reply", reply.first, "is not an answer to the sheet that is out.")
        savings = len(self._rewards)
        wrong = reply.offers.dtype.kind not in "iu" or reply.signed.shape != reply.offers.shape
        if wrong or reply.offers.min() < 0 or reply.offers.max() >= savings:
            raise BadInput("reply", reply.first, "does not fit this game.")
        quotes, signed = np.zeros(len(reply), np.int64), np.zeros(len(reply), bool)
        for i, offer in enumerate(int(move) for move in reply.offers):
            state = offer if self._sees_offer else self._offer
            if self.played > 0:
                self._rule.learn(*self._pending, state, self.played - 1)
            quote = int(sheet.quotes[i, state])
            both = bool(reply.signed[i]) and bool(sheet.signs[i, state])
            got = float(self._rewards[offer, quote]) if both else 0.0
            self._pending = (state, quote, got)
            self._offer = offer
            quotes[i], signed[i] = quote, both
            self.played += 1
        self.deals = self.deals.then(reply.offers.astype(np.int64), quotes, signed, self._window)
        self._sheet = None


def letters(iterations: int, per_letter: int) -> Iterator[int]:
    """How many interactions each letter carries."""
    for at in range(0, iterations, per_letter):
        yield min(per_letter, iterations - at)
