"""The two players of a game by post, each made from its own side and from what both may know.

``GameRules`` is public: both sides know it. The owner's player is made from the owner's side alone,
the curator's from the curator's; nothing here has both, but for a simulation that plays them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.protocol import Protocol
from noisemarket.game.sides import BoolArray, CuratorSide, OwnerSide
from noisemarket.learning.draws import GOLDEN, Stream, mix
from noisemarket.learning.messages import CuratorPlayer, OwnerPlayer
from noisemarket.learning.rule import Settings
from noisemarket.learning.rules import rule

_MOST_CELLS = 2_000_000


@dataclass(frozen=True)
class GameRules:
    """What is public about a game by post: the grids, the protocol, and how both sides learn.

    ``optimism`` is the owner's: its first Q-value in its best conceivable payoffs. ``letter`` is
    the number of interactions in a letter.
    """

    levels: Levels
    protocol: Protocol
    rule: str
    settings: Settings
    iterations: int
    window: int
    letter: int
    optimism: float

    @property
    def sees_offer(self) -> bool:
        """Whether the curator answers the present offer rather than the last one."""
        return self.protocol == "signed"

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GameRules:
        """From what ``to_dict`` gave, checked: it may have come from another machine."""
        try:
            table = cls(
                **{
                    **values,
                    "levels": Levels(**values["levels"]),
                    "settings": Settings(**values["settings"]),
                }
            )
            savings, payments = table.levels.shape
            whole = (table.iterations, table.window, table.letter, savings - 1, payments - 1)
            numbers = (*vars(table.settings).values(), table.optimism, *vars(table.levels).values())
            sound = (
                all(type(value) is int and value >= 1 for value in whole)
                and all(isinstance(v, int | float) and 0.0 <= v < 1e30 for v in numbers)
                and savings * payments <= _MOST_CELLS
                and table.protocol in get_args(Protocol)
            )
        except (TypeError, KeyError, AttributeError, ValueError):
            sound = False
        if not sound:
            raise BadInput("game", "table", "is none that can be played.")
        rule(table.rule)
        return table


def seeds(play_seed: int) -> tuple[int, int]:
    """The owners' and the curator's seed in a simulation, where one seed stands for all."""
    return mix(play_seed ^ GOLDEN), mix((play_seed + 1) ^ GOLDEN)


def owner_player(table: GameRules, side: OwnerSide, place: int, seed: int, key: int) -> OwnerPlayer:
    """The player of one owner of a side; ``key`` names its stream of random numbers."""
    worth = side.gains() if table.sees_offer else side.payoffs()
    worth, signs = _one(table, worth, side.signs(), place)
    kind, hopes = rule(table.rule), worth.T[None]
    first = kind.first_values(hopes, table.optimism * hopes.max(axis=(1, 2), keepdims=True))
    return OwnerPlayer(
        kind(first[0], table.settings), worth, signs, Stream(seed, key),
        sees_offer=table.sees_offer, window=table.window,
    )  # fmt: skip


def curator_player(
    table: GameRules, side: CuratorSide, place: int, seed: int, key: int, optimism: float
) -> CuratorPlayer:
    """The curator's player against one owner of a side."""
    worth = side.gains() if table.sees_offer else side.payoffs()
    worth, signs = _one(table, worth, side.signs(), place)
    kind, hopes = rule(table.rule), worth[None]
    first = kind.first_values(hopes, optimism * hopes.max(axis=(1, 2), keepdims=True))
    return CuratorPlayer(
        kind(first[0], table.settings), worth, signs, Stream(seed, key),
        sees_offer=table.sees_offer, window=table.window,
    )  # fmt: skip


def _one(
    table: GameRules, worth: FloatArray, signs: BoolArray, place: int
) -> tuple[FloatArray, BoolArray]:
    """One owner's tables. Where every outcome binds, nobody is asked to sign."""
    given = signs[place] if table.sees_offer else np.ones(signs[place].shape, dtype=bool)
    return worth[place], given
