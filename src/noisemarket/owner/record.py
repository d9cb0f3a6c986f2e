"""What an owner was invited to, and what its player has answered so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.files import digest, save_arrays
from noisemarket.learning.messages import OfferBatch, OwnerPlayer, QuoteBatch
from noisemarket.learning.players import GameRules
from noisemarket.ledger.contract import is_key
from noisemarket.owner.folder import Declined

_STATE = "state."


@dataclass(frozen=True)
class Invitation:
    """What a curator says before the game: all of it public.

    ``work`` is what the contract will say beyond the trade (``JobTerms.public``), ``table`` the
    rules of the game. ``key`` names the pair's stream of random numbers.
    """

    job: str
    curator_key: str
    key: int
    table: GameRules
    work: Mapping[str, Any]

    def to_json(self) -> str:
        """In one form only, so that two can be compared."""
        values = {**vars(self), "table": self.table.to_dict(), "work": dict(self.work)}
        return json.dumps(values, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Invitation:
        """From what ``to_json`` gave, each part checked.

        Raises:
            Declined: it is not an invitation.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            invitation = cls(**{**values, "table": GameRules.from_dict(values["table"])})
            job, curator, key, work = (values[n] for n in ("job", "curator_key", "key", "work"))
            sound = isinstance(job, str) and isinstance(work, dict) and is_key(curator)
            sound = sound and type(key) is int and 0 <= key < 2**64
        except (ValueError, TypeError, KeyError, BadInput):
            sound = False
        if not sound:
            raise Declined("the invitation cannot be read")
        return invitation


@dataclass(frozen=True)
class GameRecord:
    """The state of an owner's player, and all that it has answered so far."""

    invitation: Invitation
    state: dict[str, NDArray[Any]]
    firsts: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    offers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    signed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @property
    def played(self) -> int:
        """Interactions so far."""
        return len(self.offers)

    @classmethod
    def load(cls, path: Path, invitation: Invitation) -> GameRecord:
        """What was kept, if it is of this very game; a new record if nothing was."""
        if not path.exists():
            return cls(invitation, {})
        record = cls.read(path)
        if record.invitation.to_json() != invitation.to_json():
            raise Declined("the game of this job is another one")
        return record

    @classmethod
    def read(cls, path: Path) -> GameRecord:
        """What was kept."""
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            state = {n.removeprefix(_STATE): kept[n] for n in kept.files if n.startswith(_STATE)}
            return cls(
                Invitation.from_json(str(kept["invitation"])),
                state,
                tuple(int(first) for first in kept["firsts"]),
                tuple(str(digest) for digest in kept["digests"]),
                kept["offers"],
                kept["signed"],
            )

    def reply_to(self, quotes: QuoteBatch) -> OfferBatch | None:
        """What these very quotes were answered before."""
        if quotes.first not in self.firsts:
            return None
        number = self.firsts.index(quotes.first)
        if self.digests[number] != _digest(quotes):
            raise Declined("other quotes were answered in their place")
        part = slice(quotes.first, quotes.first + len(quotes))
        return OfferBatch(quotes.first, self.offers[part], self.signed[part])

    def then(self, quotes: QuoteBatch, reply: OfferBatch, player: OwnerPlayer) -> GameRecord:
        """With one more answer."""
        return GameRecord(
            self.invitation,
            player.state(),
            (*self.firsts, quotes.first),
            (*self.digests, _digest(quotes)),
            np.concatenate([self.offers, reply.offers]),
            np.concatenate([self.signed, reply.signed]),
        )

    def save(self, path: Path) -> None:
        """On disk when this returns, whole or not at all."""
        state: dict[str, Any] = {_STATE + name: value for name, value in self.state.items()}
        save_arrays(
            path,
            private=True,
            invitation=np.array(self.invitation.to_json()),
            firsts=np.array(self.firsts, np.int64),
            digests=np.array(self.digests),
            offers=self.offers,
            signed=self.signed,
            **state,
        )


def _digest(quotes: QuoteBatch) -> str:
    moves = quotes.quotes.astype(np.int64), quotes.signs.astype(np.int64)
    return digest(b"%d,%d" % (quotes.first, len(quotes)), *(one.tobytes() for one in moves)).hex()
