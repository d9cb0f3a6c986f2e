"""An owner in a clock auction: whether it stays at a price, and what it has agreed to so far.

An owner sells down to the floor at the lowest price at which it stayed, or not at all. Once it has
left it does not come back, and a price that rises is none of its clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from noisemarket.files import write_json
from noisemarket.game.levels import Levels
from noisemarket.game.sides import OwnerSide
from noisemarket.ledger.contract import is_key
from noisemarket.owner.folder import Declined

_MOST_LEVELS = 10_000


def stays(owner: OwnerSide, saving: int, payment: int) -> bool:
    """Whether an owner stays in the clock: truthfully, for nothing else is better for it.

    It stays while the payment covers the privacy that it would sell, its markup included, and
    leaves at once if it would keep less noise than its own floor.

    Args:
        owner: the side of this one owner.
        saving: the level down to which sellers sell.
        payment: the level of the price.
    """
    return bool(owner.accepts(saving, payment)[0])


@dataclass(frozen=True)
class ClockInvitation:
    """What a curator says before the clock starts: all of it public.

    ``saving`` is the level down to which sellers sell, ``work`` what the contract will say beyond
    the trade (``JobTerms.public``).
    """

    job: str
    curator_key: str
    levels: Levels
    saving: int
    work: Mapping[str, Any]

    def to_json(self) -> str:
        """In one form only, so that two can be compared."""
        values = {**vars(self), "levels": asdict(self.levels), "work": dict(self.work)}
        return json.dumps(values, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ClockInvitation:
        """From what ``to_json`` gave, each part checked.

        Raises:
            Declined: it is not an invitation.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            levels = Levels(**values["levels"])
            said = cls(**{**values, "levels": levels})
            steps = levels.saving_levels, levels.payment_levels
            sound = all(type(one) is int and 1 <= one <= _MOST_LEVELS for one in steps)
            amounts = levels.sigma_max, levels.payment_max
            sound = sound and all(type(a) in (int, float) and 0.0 < a <= 1e30 for a in amounts)
            sound = sound and type(said.saving) is int and 1 <= said.saving <= steps[0]
            sound = sound and isinstance(values["job"], str) and isinstance(values["work"], dict)
            sound = sound and is_key(said.curator_key)
        except (ValueError, TypeError, KeyError):
            sound = False
        if not sound:
            raise Declined("the invitation cannot be read")
        return said


@dataclass(frozen=True)
class ClockRecord:
    """The lowest payment level at which an owner stayed, and the one at which it left, if any."""

    invitation: ClockInvitation
    stayed: int | None = None
    left: int | None = None

    @classmethod
    def load(cls, path: Path, invitation: ClockInvitation) -> ClockRecord:
        """What was kept, if it is of this very clock; a new record if nothing was."""
        if not path.exists():
            return cls(invitation)
        record = cls.read(path)
        if record.invitation.to_json() != invitation.to_json():
            raise Declined("the clock of this job is another one")
        return record

    @classmethod
    def read(cls, path: Path) -> ClockRecord:
        """What was kept."""
        kept = json.loads(path.read_text(encoding="utf-8"))
        invitation = ClockInvitation.from_json(kept["invitation"])
        return cls(invitation, kept["stayed"], kept["left"])

    def answered(self, payment: int) -> bool | None:
        """What this price was answered before; None if it is the owner's next.

        Raises:
            Declined: the price has risen, or the owner has left.
        """
        if payment == self.left:
            return False
        if self.left is not None:
            raise Declined("the owner has left the clock")
        if payment == self.stayed:
            return True
        if not 1 <= payment <= self.invitation.levels.payment_levels:
            raise Declined("there is no such price")
        if self.stayed is not None and payment > self.stayed:
            raise Declined("the price has risen")
        return None

    def then(self, payment: int, stay: bool) -> ClockRecord:
        """With one more answer."""
        return replace(self, stayed=payment) if stay else replace(self, left=payment)

    def deals(self) -> list[tuple[int, int]]:
        """The levels of saving and payment that the owner signs: its trade if it is still there,
        and no trade."""
        if self.stayed is None or self.left is not None:
            return [(0, 0)]
        return [(self.invitation.saving, self.stayed), (0, 0)]

    def save(self, path: Path) -> None:
        """On disk when this returns, whole or not at all."""
        kept = {"invitation": self.invitation.to_json(), "stayed": self.stayed, "left": self.left}
        write_json(path, kept, private=True)
