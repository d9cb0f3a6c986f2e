"""Games by messages: many interactions in one message, for players on different machines.

One interaction at a time, a pair on two machines would exchange a message for every move. Instead
the curator draws its answers ahead, as a quote batch: for each of the next interactions and each
state it could be in, the payment it would quote and whether it would sign. The owner plays the
batch, learning as it goes, and returns a proposal batch: what it proposed and what was signed. The
curator then learns from that. So the owner cannot choose among the curator's random draws, and
neither side reveals more of its preferences than its moves. The curator learns one message late,
which hardly matters to slow learners.

``GameRules`` is public: both sides know it. The owner's player is built from the owner's side
alone, the curator's from the curator's side alone. The owner's can be saved as plain arrays and
restored by another process; the curator's needs no saving: it learns again from the replies that
came. ``play_by_quotes`` plays all owners' games through an ``Asker``. The compiled loop plays the
same games for owners of this process (``interactions_per_message`` above 1), and ends with the same
contracts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.game.environment import Contracts, Environment, Protocol
from noisemarket.game.levels import MOST_CELLS, BoolArray, FloatArray, IntArray, Levels
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing.mechanism import Agreement, PlayConfig, Progress, RunOptions
from noisemarket.pricing.rule import Rule, Settings, Stream, find_rule, seeds

if TYPE_CHECKING:
    from noisemarket.pricing.asker import Asker

State = dict[str, NDArray[np.generic]]

BISECTION = "bisection"
"""What stands for a rule in ``GameRules`` where both sides play ``bisection``."""

MOST_MESSAGES = 40
"""Messages to an owner in a bisection at most."""

_RULE = "rule."


@dataclass(frozen=True)
class GameRules:
    """What is public about a game by messages: the grids, the protocol, how both sides learn.

    ``optimism`` is a side's first Q-value in its best conceivable payoffs. ``rule`` is a
    name where the rules are sent to another machine. Preferences may change at interactions
    ``starts``; the first is 0.
    """

    levels: Levels
    protocol: Protocol
    rule: str | type[Rule]
    settings: Settings
    iterations: int
    window: int
    interactions_per_message: int
    optimism: float
    starts: tuple[int, ...] = (0,)

    @property
    def sees_proposal(self) -> bool:
        """Whether the curator answers the present proposal rather than the last one."""
        return self.protocol == "signed"

    @property
    def reopens(self) -> bool:
        return self.settings.reopen and find_rule(self.rule).reopens

    @property
    def ends_early(self) -> bool:
        """Whether the game may be over before its last interaction."""
        return self.rule == BISECTION

    def phases(self, environment: Environment) -> list[int]:
        """The phases of an environment that are played; a bisection plays only the last."""
        last = len(environment.phases) - 1
        return [last] if self.rule == BISECTION else list(range(len(self.starts)))

    def check(self) -> None:
        """Refuse rules that cannot be played: they may come from another machine."""
        levels, (savings, payments) = self.levels, self.levels.shape
        counts = (
            savings - 1, payments - 1, self.iterations, self.window, self.interactions_per_message,
        )  # fmt: skip
        numbers = *vars(self.settings).values(), self.optimism, levels.sigma_max, levels.payment_max
        sound = (
            min(counts) >= 1
            and all(0.0 <= value < 1e30 for value in numbers)
            and self.starts[:1] == (0,)
            and list(self.starts) == sorted(set(self.starts))
            and savings * payments <= MOST_CELLS
            and len(self.starts) * max(savings * payments, MOST_CELLS // 100) <= 10 * MOST_CELLS
        )
        if not sound:
            raise BadInput("game", "rules", "cannot be played: a value is missing or out of range.")
        if not self.ends_early:
            find_rule(self.rule)


def game_rules(
    environment: Environment, rule: str | type[Rule], config: PlayConfig, per_message: int
) -> GameRules:
    """The public rules of a learned game."""
    starts = [phase.start for phase in environment.phases if phase.start < config.iterations]
    return GameRules(
        levels=environment.levels,
        protocol=environment.protocol,
        rule=rule,
        settings=config.settings,
        iterations=config.iterations,
        window=min(config.window, config.iterations - starts[-1]),
        interactions_per_message=per_message,
        optimism=config.optimism,
        starts=tuple(starts),
    )


def bisection_rules(environment: Environment, config: PlayConfig) -> GameRules:
    """The public rules of a bisection: one interaction a message, and few of them."""
    few = replace(config, iterations=min(config.iterations, MOST_MESSAGES))
    rules = game_rules(environment, BISECTION, few, 1)
    return replace(rules, protocol="signed", window=MOST_MESSAGES, starts=(0,))


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


def usual_deal(moves: IntArray) -> tuple[int, int]:
    """The saving and payment signed most often, if at least half were signed; else no trade.

    ``moves`` has a row for each interaction: proposal, quote, and whether both signed.
    """
    traded = moves[(moves[:, 2] > 0) & (moves[:, :2].sum(axis=1) > 0), :2]
    if not len(traded) or 2 * len(traded) < len(moves):
        return 0, 0
    deals, times = np.unique(traded, axis=0, return_counts=True)
    saving, payment = deals[int(times.argmax())].tolist()
    return saving, payment


def last_deal(moves: IntArray) -> tuple[int, int]:
    """The saving and payment signed last; no trade if nothing was."""
    signed = moves[moves[:, 2] > 0, :2].tolist()
    return tuple(signed[-1]) if signed else (0, 0)


class _Player:
    """What all players keep: the number of savings and payments, how far they are, and the last
    ``moves``, as ``usual_deal`` takes them."""

    def __init__(self, shape: tuple[int, ...], window: int) -> None:
        self._shape, self._window = shape, window
        self.played = 0
        self.moves: IntArray = np.zeros((0, 3), np.int64)

    def _keep(self, moves: Sequence[tuple[int, int, bool]]) -> IntArray:
        """The last moves as an array; only ``window`` of all are kept."""
        last = np.array(moves, np.int64)
        self.moves = np.concatenate([self.moves, last])[-self._window :]
        return last

    def deal(self) -> tuple[int, int]:
        return usual_deal(self.moves)


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
        moves = []
        for quotes, signs in zip(batch.quotes, batch.signs, strict=True):
            moves.append(self._move(quotes, signs))
            self.played += 1
        proposals, _, signed = self._keep(moves).T
        return ProposalBatch(batch.first, proposals.copy(), signed.astype(bool))

    @abstractmethod
    def _move(self, quotes: IntArray, signs: BoolArray) -> tuple[int, int, bool]:
        """Play one interaction, given the curator's answers in every state; gives the proposal, the
        quote, and whether both sign."""

    @abstractmethod
    def _memory(self) -> State:
        """What the player has learned, as arrays."""

    @abstractmethod
    def _remember(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take back what ``_memory`` gave."""

    def state(self) -> State:
        return {**self._memory(), "played": np.array([self.played]), "moves": self.moves}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self._remember(state)
        self.played = int(state["played"][0])
        self.moves = np.array(state["moves"], np.int64).reshape(-1, 3)


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
        moves = []
        for i, proposal in enumerate(reply.proposals.tolist()):
            state = self._state(proposal)
            quote = int(batch.quotes[i, state])
            moves.append((proposal, quote, bool(reply.signed[i] and batch.signs[i, state])))
            self._hear(*moves[-1])
            self.played += 1
        self._keep(moves)
        self._open = None

    def _state(self, proposal: int) -> int:
        """The state in which the curator answers a proposal."""
        return proposal

    @abstractmethod
    def _hear(self, proposal: int, quote: int, signed: bool) -> None:
        """Take in one interaction: whether both signed."""


class _Learner(_Player):
    """What both players that follow a learning rule have.

    Tables are ``(phases, savings, payments)``: ``_rewards`` is what an outcome is worth to this
    side if both sign, else 0; ``_signs`` says where it signs.
    """

    _proposal = 0  # the last proposal

    def __init__(
        self, rules: GameRules, sides: Sequence[OwnerSide | CuratorSide], stream: Stream
    ) -> None:
        super().__init__(rules.levels.shape, rules.window)
        self._rules, self._stream = rules, stream
        tables = [side.gains() if rules.sees_proposal else side.payoffs() for side in sides]
        self._rewards = np.concatenate(tables)
        self._signs = np.ones(self._rewards.shape, dtype=bool)  # where every outcome binds
        if rules.sees_proposal:
            self._signs = np.concatenate([side.signs() for side in sides])
        self._since = 0  # the interaction at which its tables started
        self._rule = self._fresh_rule(0)

    def _fresh_rule(self, phase: int) -> Rule:
        """The rule as it is before it has learned anything, for the preferences of a phase."""
        hopes = self._rewards[phase : phase + 1]
        if isinstance(self, OwnerPlayer):
            hopes = hopes.swapaxes(1, 2)
        kind = find_rule(self._rules.rule)
        first = kind.first_values(hopes, np.array([[[self._rules.optimism * hopes.max()]]]))
        return kind(first[0], self._rules.settings)

    def _state(self, proposal: int) -> int:
        return proposal if self._rules.sees_proposal else self._proposal

    def _phase(self, t: int | IntArray) -> IntArray:
        return np.searchsorted(self._rules.starts, t, side="right") - 1

    def _outcome(self, proposal: int, quote: int) -> tuple[int, int, int]:
        return int(self._phase(self.played)), proposal, quote


class LearningOwner(_Learner, OwnerPlayer):
    """An owner's player that follows a learning rule.

    It knows when its own preferences change and, with ``reopen``, starts its tables anew then.
    """

    _quote = 0  # the last quote

    def __init__(self, rules: GameRules, sides: Sequence[OwnerSide], stream: Stream) -> None:
        super().__init__(rules, sides, stream)
        self._changes = {
            start: phase
            for phase, start in enumerate(rules.starts)
            if rules.reopens and phase > 0 and sides[phase].differs(sides[phase - 1])[0]
        }

    def _move(self, quotes: IntArray, signs: BoolArray) -> tuple[int, int, bool]:
        if self.played in self._changes:
            self._rule, self._since = self._fresh_rule(self._changes[self.played]), self.played
        proposal = self._rule.act(self._quote, self._stream.for_owner())
        state = self._state(proposal)
        quote = int(quotes[state])
        outcome = self._outcome(proposal, quote)
        both = bool(signs[state]) and bool(self._signs[outcome])
        reward = float(self._rewards[outcome]) if both else 0.0
        self._rule.learn(self._quote, proposal, reward, quote, self.played - self._since)
        self._proposal, self._quote = proposal, quote
        return proposal, quote, both

    def _memory(self) -> State:
        rule = {_RULE + name: value for name, value in self._rule.state().items()}
        return {
            **rule,
            "stream": self._stream.state.copy(),
            "last": np.array([self._proposal, self._quote, self._since]),
        }

    def _remember(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        rule = {n.removeprefix(_RULE): v for n, v in state.items() if n.startswith(_RULE)}
        self._rule.restore(rule)
        self._stream.state = np.array(state["stream"], np.uint64)
        self._proposal, self._quote, self._since = (int(move) for move in state["last"])


class LearningCurator(_Learner, CuratorPlayer):
    """A curator's player that follows a learning rule.

    With ``reopen`` it starts its tables anew when the owner's proposals have moved.
    """

    _pending = (0, 0, 0.0)  # state, quote and reward of the last interaction
    _averages: FloatArray | None = None  # of the owner's proposals, a fast and a slow one

    def _draw(self, interactions: int) -> tuple[IntArray, BoolArray]:
        uniforms = np.array([self._stream.for_curator() for _ in range(interactions)])
        quotes = self._rule.act_everywhere(uniforms)
        if not self._rules.sees_proposal:
            return quotes, np.ones(quotes.shape, bool)
        phase = self._phase(self.played + np.arange(interactions))
        return quotes, self._signs[phase[:, None], np.arange(self._shape[0]), quotes]

    def _hear(self, proposal: int, quote: int, signed: bool) -> None:
        state = self._state(proposal)
        if self.played > 0:
            self._rule.learn(*self._pending, state, self.played - 1 - self._since)
        if self._rules.reopens and self._has_moved(proposal):
            phase = int(self._phase(self.played))
            self._rule, self._since = self._fresh_rule(phase), self.played
        reward = float(self._rewards[self._outcome(proposal, quote)]) if signed else 0.0
        self._pending = (state, quote, reward)
        self._proposal = proposal

    def _has_moved(self, proposal: int) -> bool:
        from noisemarket.pricing.learning import has_moved

        if self._averages is None:
            self._averages = np.full((2, self._shape[0]), 1.0 / self._shape[0])
        return bool(has_moved(self._averages, proposal, self.played - self._since))


def owner_player(rules: GameRules, sides: Sequence[OwnerSide], seed: int, key: int) -> OwnerPlayer:
    """The player of one owner. ``sides`` are its preferences in each phase, each of one owner;
    ``key`` names its stream of random numbers."""
    from noisemarket.pricing.bisection import BisectionOwner  # which needs what is above

    if rules.rule == BISECTION:
        return BisectionOwner(sides[-1], rules.window)
    return LearningOwner(rules, sides, Stream(seed, key))


def curator_player(
    index: int, rules: GameRules, environment: Environment, config: PlayConfig
) -> CuratorPlayer:
    """The curator's player against the owner of that index."""
    from noisemarket.pricing.bisection import BisectionCurator  # which needs what is above

    key, one = int(environment.population.key[index]), slice(index, index + 1)
    sides = [environment.curator_side(phase, one) for phase in rules.phases(environment)]
    if rules.rule == BISECTION:
        return BisectionCurator(sides[-1], rules.window)
    return LearningCurator(rules, sides, Stream(seeds(config.seed)[1], key))


def play_by_quotes(
    environment: Environment, rules: GameRules, asker: Asker, options: RunOptions
) -> Agreement:
    """Play the games of all owners through an asker.

    Every owner whose game is not over gets one message with quotes at a time. An owner that does
    not reply, or whose reply does not fit the game, has left: no trade.
    """
    owners = len(environment)
    players = {i: curator_player(i, rules, environment, options.play) for i in range(owners)}
    messages, nobody = 0, Contracts.same(0, 0, 0)
    while not options.stop():
        waiting = {
            i: one
            for i, one in players.items()
            if one.played < rules.iterations and not one.settled
        }
        if not waiting:
            contracts = Contracts.same(owners, 0, 0)
            for i, one in players.items():
                saving, payment = one.deal()
                contracts.saving[i], contracts.payment[i] = saving, payment
                contracts.signed[i] = saving + payment > 0
            options.watch(Progress(slice(0, owners), contracts, owners, owners))
            return Agreement(contracts, np.ones(owners, dtype=bool), messages=messages / owners)
        length = rules.interactions_per_message
        quotes = {
            i: one.draw_quotes(min(length, rules.iterations - one.played))
            for i, one in waiting.items()
        }
        messages += len(quotes)
        replies = asker.play(rules, quotes)
        for i, one in waiting.items():
            try:
                one.take(replies[i])
            except (KeyError, BadInput):
                del players[i]
        if not players:
            raise NoisemarketError("No owner has taken part in the negotiation.")
        share = min(one.played for one in players.values()) / rules.iterations
        options.watch(Progress(slice(0, 0), nobody, int(share * owners), owners))
    return Agreement(Contracts.same(owners, 0, 0), np.zeros(owners, dtype=bool))
