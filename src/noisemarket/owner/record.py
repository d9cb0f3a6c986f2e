"""An owner's invitation and answers in a job; the agreed deal follows from them.

An owner that is asked about prices sells down to the floor at the lowest price at which it stayed,
or not at all. Once it has left it does not come back, and a price that rises is not of its sale.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.files import digest, save_arrays, write_json
from noisemarket.owner.folder import PLAY, SALE, Declined
from noisemarket.owner.invitations import (
    GameInvitation,
    JobInvitation,
    MenuInvitation,
    SaleInvitation,
)
from noisemarket.pricing.messages import OwnerPlayer, ProposalBatch, QuoteBatch

_STATE = "state."


@contextlib.contextmanager
def of_this_version() -> Iterator[None]:
    """Declines what another version has kept, should it lack something or have another form."""
    try:
        yield
    except (KeyError, ValueError, TypeError, Declined):
        raise Declined("what was kept of this job is of another version") from None


@dataclass(frozen=True)
class GameRecord:
    """The state of an owner's player, and all that it has answered so far."""

    invitation: GameInvitation
    state: dict[str, NDArray[Any]] = field(default_factory=dict)
    firsts: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    proposals: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    signed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def read(cls, path: Path) -> GameRecord:
        """What was kept."""
        with of_this_version(), path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return cls(
                GameInvitation.from_json(str(kept["invitation"])),
                {n.removeprefix(_STATE): kept[n] for n in kept.files if n.startswith(_STATE)},
                tuple(int(first) for first in kept["firsts"]),
                tuple(str(digest) for digest in kept["digests"]),
                kept["proposals"],
                kept["signed"],
            )

    def reply_to(self, quotes: QuoteBatch) -> ProposalBatch | None:
        """What these very quotes were answered before."""
        if quotes.first not in self.firsts:
            return None
        number = self.firsts.index(quotes.first)
        if self.digests[number] != _digest(quotes):
            raise Declined("other quotes were answered in their place")
        part = slice(quotes.first, quotes.first + len(quotes))
        return ProposalBatch(quotes.first, self.proposals[part], self.signed[part])

    def then(self, quotes: QuoteBatch, reply: ProposalBatch, player: OwnerPlayer) -> GameRecord:
        """With one more answer."""
        return GameRecord(
            self.invitation,
            player.state(),
            (*self.firsts, quotes.first),
            (*self.digests, _digest(quotes)),
            np.concatenate([self.proposals, reply.proposals]),
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
            proposals=self.proposals,
            signed=self.signed,
            **state,
        )


@dataclass(frozen=True)
class SaleRecord:
    """What an owner has answered about prices, a bid or a menu; or its invitation alone.

    ``stayed`` is the lowest payment level at which it stayed, ``left`` the one at which it left;
    ``bid`` is the level that it named; ``item`` is what it took of a menu, -1 for nothing.
    """

    invitation: JobInvitation
    stayed: int | None = None
    left: int | None = None
    bid: int | None = None
    item: int | None = None

    @classmethod
    def read(cls, path: Path) -> SaleRecord:
        """What was kept."""
        with of_this_version():
            kept = json.loads(path.read_text(encoding="utf-8"))
            kind = _KINDS[kept.pop("kind")]
            return cls(**{**kept, "invitation": kind.from_json(kept["invitation"])})

    def answered(self, payment: int) -> bool | None:
        """What this price was answered before; None if it is the owner's next."""
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

    def then(self, payment: int, stay: bool) -> SaleRecord:
        """With one more answer."""
        return replace(self, stayed=payment) if stay else replace(self, left=payment)

    def deals(self, payment: int = 0) -> list[tuple[int, int]]:
        """The levels of saving and payment that the owner signs, if it is offered this payment:
        its trade if it has agreed to one, and no trade."""
        to, trade = self.invitation, (0, 0)
        if isinstance(to, MenuInvitation) and self.item is not None and self.item >= 0:
            trade = to.savings[self.item], to.payments[self.item]
        elif isinstance(to, SaleInvitation) and self.bid is not None:
            if self.bid <= to.levels.payment_levels:
                trade = to.saving, max(self.bid, payment)
        elif isinstance(to, SaleInvitation) and self.stayed is not None and self.left is None:
            trade = to.saving, self.stayed
        return [(0, 0)] if trade == (0, 0) else [trade, (0, 0)]

    def save(self, path: Path) -> None:
        """On disk when this returns, whole or not at all."""
        kept = vars(self) | {
            "kind": type(self.invitation).__name__,
            "invitation": self.invitation.to_json(),
        }
        write_json(path, kept, private=True)


_KINDS: dict[str, type[JobInvitation]] = {
    one.__name__: one for one in (JobInvitation, SaleInvitation, MenuInvitation)
}


def negotiated(path: Path) -> GameRecord | SaleRecord:
    """What the owner has agreed to in a job, in whose folder it is kept; declined if nothing."""
    if (path / SALE).exists():
        return SaleRecord.read(path / SALE)
    try:
        record = GameRecord.read(path / PLAY)
    except FileNotFoundError:
        raise Declined("nothing was negotiated in this job") from None
    rules = record.invitation.table
    if len(record.proposals) < rules.iterations and not rules.ends_early:
        raise Declined("the negotiation is not over")
    return record


def _digest(quotes: QuoteBatch) -> str:
    moves = quotes.quotes.astype(np.int64), quotes.signs.astype(np.int64)
    return digest(b"%d,%d" % (quotes.first, len(quotes)), *(one.tobytes() for one in moves)).hex()
