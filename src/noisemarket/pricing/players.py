"""The two players of a game by messages, each built from its own side and from public rules.

``GameRules`` is public: both sides know it. The owner's player is built from the owner's side
alone, the curator's from the curator's side alone. Only a simulation holds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.game.levels import MOST_CELLS, BoolArray, FloatArray, IntArray, Levels
from noisemarket.game.protocol import Protocol
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing.bisection_curator import curator_beliefs, hear_answer, quote, stands
from noisemarket.pricing.bisection_owner import (
    BEST,
    Wants,
    hear_quote,
    make_proposal,
    owner_beliefs,
    wants_of,
)
from noisemarket.pricing.draws import GOLDEN, Stream, mix
from noisemarket.pricing.messages import (
    CuratorPlayer,
    LearningCurator,
    LearningOwner,
    OwnerPlayer,
    Stakes,
    State,
)
from noisemarket.pricing.rule import Rule, Settings
from noisemarket.pricing.rules import find_rule

BISECTION = "bisection"
"""What stands for a rule in ``GameRules`` where both sides play ``bisection``."""


@dataclass(frozen=True)
class GameRules:
    """What is public about a game by messages: the grids, the protocol, how both sides learn.

    ``optimism`` is the owner's: its first Q-value in its best conceivable payoffs. ``rule`` is a
    name where the rules are sent to another machine.
    """

    levels: Levels
    protocol: Protocol
    rule: str | type[Rule]
    settings: Settings
    iterations: int
    window: int
    interactions_per_message: int
    optimism: float

    @property
    def sees_proposal(self) -> bool:
        """Whether the curator answers the present proposal rather than the last one."""
        return self.protocol == "signed"

    @property
    def ends_early(self) -> bool:
        """Whether the game may be over before its last interaction."""
        return self.rule == BISECTION

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GameRules:
        """From what ``to_dict`` returned, checked: it may come from another machine."""
        try:
            levels, settings = Levels(**values["levels"]), Settings(**values["settings"])
            rules = cls(**{**values, "levels": levels, "settings": settings})
            savings, payments = rules.levels.shape
            whole = (
                rules.iterations, rules.window, rules.interactions_per_message,
                savings - 1, payments - 1,
            )  # fmt: skip
            numbers = (*vars(rules.settings).values(), rules.optimism, *vars(rules.levels).values())
            sound = (
                all(type(value) is int and value >= 1 for value in whole)
                and all(isinstance(v, int | float) and 0.0 <= v < 1e30 for v in numbers)
                and savings * payments <= MOST_CELLS
                and rules.protocol in get_args(Protocol)
            )
        except (TypeError, KeyError, AttributeError, ValueError):
            sound = False
        if not sound:
            raise BadInput("game", "rules", "cannot be played: a value is missing or out of range.")
        if not rules.ends_early:
            find_rule(rules.rule)
        return rules


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


def seeds(play_seed: int) -> tuple[int, int]:
    """The owners' and the curator's seed in a simulation, where one seed stands for all."""
    return mix(play_seed ^ GOLDEN), mix((play_seed + 1) % 2**64 ^ GOLDEN)


def owner_player(rules: GameRules, side: OwnerSide, seed: int, key: int) -> OwnerPlayer:
    """The player of the only owner of a side; ``key`` names its stream of random numbers."""
    if rules.rule == BISECTION:
        return BisectionOwner(side, rules.window)
    stakes = _stakes(rules, side)
    return LearningOwner(
        _learner(rules, stakes.rewards.T, rules.optimism), stakes, Stream(seed, key),
        sees_proposal=rules.sees_proposal, window=rules.window,
    )  # fmt: skip


def curator_player(
    rules: GameRules, side: CuratorSide, seed: int, key: int, optimism: float
) -> CuratorPlayer:
    """The curator's player against the only owner of a side."""
    if rules.rule == BISECTION:
        return BisectionCurator(side, rules.window)
    stakes = _stakes(rules, side)
    return LearningCurator(
        _learner(rules, stakes.rewards, optimism), stakes, Stream(seed, key),
        sees_proposal=rules.sees_proposal, window=rules.window,
    )  # fmt: skip


def _stakes(rules: GameRules, side: OwnerSide | CuratorSide) -> Stakes:
    """A side's rewards and where it signs; where every outcome binds, it always signs."""
    if rules.sees_proposal:
        return Stakes(side.gains()[0], side.signs()[0])
    rewards = side.payoffs()[0]
    return Stakes(rewards, np.ones(rewards.shape, dtype=bool))


def _learner(rules: GameRules, hopes: FloatArray, optimism: float) -> Rule:
    """A learning rule with its first Q-values; ``hopes`` is indexed (state, action)."""
    kind = find_rule(rules.rule)
    first = kind.first_values(hopes[None], np.array([[[optimism * hopes.max()]]]))
    return kind(first[0], rules.settings)
