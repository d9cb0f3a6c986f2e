"""What a curator says before it negotiates: the job, its work, and how the trade is agreed.

All of it is public. An owner keeps the invitation that it answered: within a job it answers to no
other one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

from noisemarket.errors import BadInput
from noisemarket.game.levels import Levels
from noisemarket.ledger.document import is_key
from noisemarket.owner.folder import Declined
from noisemarket.pricing.messages import GameRules

_MOST_LEVELS = 10_000
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "table": GameRules.from_dict,
    "levels": lambda values: Levels(**values),
    "savings": tuple,
    "payments": tuple,
}


@dataclass(frozen=True)
class AnyInvitation:
    """What all invitations say. ``work`` is what the contract will say beyond the trade
    (``terms.WORK``)."""

    job: str
    curator_key: str
    work: Mapping[str, Any]

    def to_json(self) -> str:
        """In one form only, so that two can be compared."""
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From what ``to_json`` gave, each part checked."""
        try:
            values = json.loads(text)
            for name in _PARTS.keys() & values.keys():
                values[name] = _PARTS[name](values[name])
            said = cls(**values)
            sound = said._is_sound()
        except (ValueError, TypeError, AttributeError, RecursionError, BadInput):
            sound = False
        if not sound:
            raise Declined("the invitation cannot be read")
        return said

    def _is_sound(self) -> bool:
        job, work = cast(Any, self.job), cast(Any, self.work)
        return isinstance(job, str) and isinstance(work, dict) and is_key(self.curator_key)

    def refuse_other(self, invitation: AnyInvitation) -> None:
        """Decline an invitation to another negotiation than this."""
        if self.to_json() != invitation.to_json():
            raise Declined("the negotiation of this job is another one")


@dataclass(frozen=True)
class GameInvitation(AnyInvitation):
    """To a game by these rules. ``key`` names the pair's stream of random numbers."""

    key: int
    table: GameRules

    @property
    def levels(self) -> Levels:
        """The grids of savings and payments."""
        return self.table.levels

    def _is_sound(self) -> bool:
        return super()._is_sound() and type(self.key) is int and 0 <= self.key < 2**64


@dataclass(frozen=True)
class JobInvitation(AnyInvitation):
    """To a job alone: its contracts are to be taken or left."""

    levels: Levels

    def _is_sound(self) -> bool:
        levels = self.levels
        steps = levels.saving_levels, levels.payment_levels
        amounts = levels.sigma_max, levels.payment_max
        return (
            super()._is_sound()
            and all(type(one) is int and 1 <= one <= _MOST_LEVELS for one in steps)
            and all(type(one) in (int, float) and 0.0 < one <= 1e30 for one in amounts)
        )


@dataclass(frozen=True)
class SaleInvitation(JobInvitation):
    """To name a price for one sale, or to take one. ``saving`` is the level that is sold."""

    saving: int

    def _is_sound(self) -> bool:
        sound = super()._is_sound() and type(self.saving) is int
        return sound and 1 <= self.saving <= self.levels.saving_levels


@dataclass(frozen=True)
class MenuInvitation(JobInvitation):
    """To take an item of a menu: savings and payments as level numbers."""

    savings: tuple[int, ...]
    payments: tuple[int, ...]

    def _is_sound(self) -> bool:
        grids = (
            (self.savings, self.levels.saving_levels),
            (self.payments, self.levels.payment_levels),
        )
        return (
            super()._is_sound()
            and len(self.savings) == len(self.payments) <= _MOST_LEVELS
            and all(type(n) is int and 0 <= n <= most for items, most in grids for n in items)
        )
