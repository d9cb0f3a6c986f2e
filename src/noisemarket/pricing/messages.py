"""The same game in batches: many interactions in one message, for players on different machines.

One interaction at a time, a pair on two machines would exchange a message for every move. Instead
the curator draws its answers ahead, as a quote batch: for each of the next interactions and each
state it could be in, the payment it would quote and whether it would sign. The owner plays the
batch, learning as it goes, and returns a proposal batch: what it proposed and what was signed. The
curator then learns from that. So the owner cannot choose among the curator's random draws, and
neither side reveals more of its preferences than its moves. The curator learns one message late,
which hardly matters to slow learners.

The owner's player can be saved as plain arrays and restored by another process. The curator's
player needs no saving: it learns again from the replies that came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.pricing.draws import Stream
from noisemarket.pricing.rule import Rule

State = dict[str, NDArray[np.generic]]

_RULE = "rule."


@dataclass(frozen=True)
class QuoteBatch:
    """The curator's answers ahead, ``(interactions, states)``: quotes, and what it would sign."""

    first: int
    quotes: IntArray
    signs: BoolArray

    def __len__(self) -> int:
        return len(self.quotes)


@dataclass(frozen=True)
class ProposalBatch:
    """What the owner proposed in each interaction, and where both signed."""

    first: int
    proposals: IntArray
    signed: BoolArray

    def __len__(self) -> int:
        return len(self.proposals)


@dataclass(frozen=True)
class RecentDeals:
    """The last interactions of a pair: proposals, quotes and where both signed."""

    proposals: IntArray
    quotes: IntArray
    signed: BoolArray

    @classmethod
    def none(cls) -> RecentDeals:
        """Before the first interaction."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))

    def then(
        self, proposals: IntArray, quotes: IntArray, signed: BoolArray, window: int
    ) -> RecentDeals:
        """With later interactions added; only the last ``window`` are kept."""
        return RecentDeals(
            np.concatenate([self.proposals, proposals])[-window:],
            np.concatenate([self.quotes, quotes])[-window:],
            np.concatenate([self.signed, signed])[-window:],
        )

    def usual(self) -> tuple[int, int]:
        """The saving and payment signed most often, if at least half were signed; else no trade."""
        traded = self.signed & (self.proposals + self.quotes > 0)
        if not len(traded) or 2 * int(traded.sum()) < len(traded):
            return 0, 0
        shape = int(self.proposals.max()) + 1, int(self.quotes.max()) + 1
        seen = np.zeros(shape, np.int64)
        np.add.at(seen, (self.proposals[traded], self.quotes[traded]), 1)
        saving, payment = np.unravel_index(int(seen.argmax()), shape)
        return int(saving), int(payment)

    def last(self) -> tuple[int, int]:
        """The saving and payment signed last; no trade if nothing was."""
        signed = np.flatnonzero(self.signed)
        if not len(signed):
            return 0, 0
        return int(self.proposals[signed[-1]]), int(self.quotes[signed[-1]])


class _Player:
    """What all players keep: the number of savings and payments, how far they are, and the last
    interactions."""

    def __init__(self, shape: tuple[int, ...], window: int) -> None:
        self._shape, self._window = shape, window
        self.played = 0
        self.deals = RecentDeals.none()

    def deal(self) -> tuple[int, int]:
        """The saving and the payment that the pair has agreed to."""
        return self.deals.usual()


class OwnerPlayer(_Player, ABC):
    """An owner's player: it alone knows what the owner wants."""

    def answer(self, batch: QuoteBatch) -> ProposalBatch:
        """Play the interactions of a quote batch, learning on the way."""
        savings, payments = self._shape
        fits = batch.quotes.shape == batch.signs.shape == (len(batch), savings)
        if batch.first != self.played:
            raise BadInput("quotes", batch.first, f"the next interaction is {self.played}.")
        if not fits or not len(batch) or batch.quotes.min() < 0 or batch.quotes.max() >= payments:
            raise BadInput("quotes", str(batch.quotes.shape), "do not fit this game.")
        proposals, quotes = np.zeros(len(batch), np.int64), np.zeros(len(batch), np.int64)
        signed = np.zeros(len(batch), bool)
        for i in range(len(batch)):
            proposals[i], quotes[i], signed[i] = self._move(batch.quotes[i], batch.signs[i])
            self.played += 1
        self.deals = self.deals.then(proposals, quotes, signed, self._window)
        return ProposalBatch(batch.first, proposals, signed)

    @abstractmethod
    def _move(self, quotes: IntArray, signs: BoolArray) -> tuple[int, int, bool]:
        """Play one interaction, given the curator's answers in every state.

        Gives the proposal, the quote, and whether both sign.
        """

    @abstractmethod
    def _memory(self) -> State:
        """What the player has learned, as arrays."""

    @abstractmethod
    def _remember(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take back what ``_memory`` gave."""

    def state(self) -> State:
        """Everything that changes, as arrays."""
        return {
            **self._memory(),
            "played": np.array([self.played]),
            "proposals": self.deals.proposals,
            "quotes": self.deals.quotes,
            "signed": self.deals.signed,
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what ``state`` gave."""
        self._remember(state)
        self.played = int(state["played"][0])
        moves = np.array(state["proposals"], np.int64), np.array(state["quotes"], np.int64)
        self.deals = RecentDeals(*moves, np.array(state["signed"], bool))


class CuratorPlayer(_Player, ABC):
    """A curator's player against one owner: it alone knows what the curator wants."""

    _open: QuoteBatch | None = None
    settled = False
    """Whether there is nothing left to negotiate."""

    def draw_quotes(self, interactions: int) -> QuoteBatch:
        """Draw the answers to the next interactions. They stand until the reply is taken."""
        if self._open is None:
            self._open = QuoteBatch(self.played, *self._draw(interactions))
        return self._open

    @abstractmethod
    def _draw(self, interactions: int) -> tuple[IntArray, BoolArray]:
        """A quote for each interaction and state, and whether the curator would sign it."""

    def take(self, reply: ProposalBatch) -> None:
        """Learn from the owner's reply to the open quote batch."""
        batch = self._open
        if batch is None or reply.first != batch.first or len(reply) != len(batch):
            raise BadInput("proposals", reply.first, "do not answer the quotes that were sent.")
        wrong = (
            reply.proposals.dtype.kind not in "iu" or reply.signed.shape != reply.proposals.shape
        )
        if wrong or reply.proposals.min() < 0 or reply.proposals.max() >= self._shape[0]:
            raise BadInput("proposals", reply.first, "do not fit this game.")
        quotes, signed = np.zeros(len(reply), np.int64), np.zeros(len(reply), bool)
        for i, proposal in enumerate(int(move) for move in reply.proposals):
            state = self._state(proposal)
            quotes[i] = batch.quotes[i, state]
            signed[i] = bool(reply.signed[i]) and bool(batch.signs[i, state])
            self._hear(proposal, int(quotes[i]), bool(signed[i]))
            self.played += 1
        self.deals = self.deals.then(reply.proposals.astype(np.int64), quotes, signed, self._window)
        self._open = None

    def _state(self, proposal: int) -> int:
        """The state in which the curator answers a proposal."""
        return proposal

    @abstractmethod
    def _hear(self, proposal: int, quote: int, signed: bool) -> None:
        """Take in one interaction: whether both signed."""


@dataclass(frozen=True, eq=False)
class Stakes:
    """What a learner plays for, ``(phases, savings, payments)``: ``rewards`` is what an outcome is
    worth to its side if both sign, else 0; ``signs`` says where this side signs. Phase i holds from
    interaction ``starts[i]`` on."""

    rewards: FloatArray
    signs: BoolArray
    starts: IntArray

    def phase(self, t: int | IntArray) -> IntArray:
        """The phase in which an interaction lies."""
        return np.asarray(np.searchsorted(self.starts, t, side="right") - 1)


class _Learner(_Player):
    """What both players that follow a learning rule have."""

    _proposal = 0  # the last proposal

    def __init__(
        self, rule: Rule, stakes: Stakes, stream: Stream, *, sees_proposal: bool, window: int
    ) -> None:
        super().__init__(stakes.rewards.shape[1:], window)
        self._rule, self._stakes, self._stream = rule, stakes, stream
        self._sees_proposal = sees_proposal

    def _state(self, proposal: int) -> int:
        return proposal if self._sees_proposal else self._proposal

    def _outcome(self, proposal: int, quote: int) -> tuple[int, int, int]:
        return int(self._stakes.phase(self.played)), proposal, quote


class LearningOwner(_Learner, OwnerPlayer):
    """An owner's player that follows a learning rule."""

    _quote = 0  # the last quote

    def _move(self, quotes: IntArray, signs: BoolArray) -> tuple[int, int, bool]:
        proposal = self._rule.act(self._quote, self._stream.for_owner())
        state = self._state(proposal)
        quote = int(quotes[state])
        outcome = self._outcome(proposal, quote)
        both = bool(signs[state]) and bool(self._stakes.signs[outcome])
        reward = float(self._stakes.rewards[outcome]) if both else 0.0
        self._rule.learn(self._quote, proposal, reward, quote, self.played)
        self._proposal, self._quote = proposal, quote
        return proposal, quote, both

    def _memory(self) -> State:
        rule = {_RULE + name: value for name, value in self._rule.state().items()}
        return {
            **rule,
            "stream": self._stream.state.copy(),
            "last": np.array([self._proposal, self._quote]),
        }

    def _remember(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        rule = {n.removeprefix(_RULE): v for n, v in state.items() if n.startswith(_RULE)}
        self._rule.restore(rule)
        self._stream.state = np.array(state["stream"], np.uint64)
        self._proposal, self._quote = (int(move) for move in state["last"])


class LearningCurator(_Learner, CuratorPlayer):
    """A curator's player that follows a learning rule."""

    _pending = (0, 0, 0.0)  # state, quote and reward of the last interaction

    def _draw(self, interactions: int) -> tuple[IntArray, BoolArray]:
        uniforms = np.array([self._stream.for_curator() for _ in range(interactions)])
        quotes = self._rule.act_everywhere(uniforms)
        if not self._sees_proposal:
            return quotes, np.ones(quotes.shape, bool)
        phase = self._stakes.phase(self.played + np.arange(interactions))
        return quotes, self._stakes.signs[phase[:, None], np.arange(self._shape[0]), quotes]

    def _hear(self, proposal: int, quote: int, signed: bool) -> None:
        state = self._state(proposal)
        if self.played > 0:
            self._rule.learn(*self._pending, state, self.played - 1)
        reward = float(self._stakes.rewards[self._outcome(proposal, quote)]) if signed else 0.0
        self._pending = (state, quote, reward)
        self._proposal = proposal
