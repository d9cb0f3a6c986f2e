"""A negotiation as an owner sees it: the invitation, its answers, and the agreed deal.

All of an invitation is public. An owner keeps the one that it answered: within a job it answers to
no other one. An owner that is asked about prices sells down to the floor at the lowest price at
which it stayed, or not at all. Once it has left it does not come back, and a price that rises is
not of its sale.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from noisemarket.errors import BadInput
from noisemarket.files import digest, save_arrays, write_atomic
from noisemarket.game.levels import Levels
from noisemarket.ledger.contract import Contract, PublicKey
from noisemarket.ledger.money import to_micro
from noisemarket.owner.folder import PLAY, SALE, Declined
from noisemarket.owner.terms import contract_of, contracted
from noisemarket.pricing.messages import GameRules, OwnerPlayer, ProposalBatch, QuoteBatch
from noisemarket.privacy.accountant import PrivacyBudget

_MOST_LEVELS = 10_000
Level = Annotated[int, Field(ge=0)]


class Checked:
    """A dataclass that becomes JSON in one form only, and is checked by its types when read."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    def to_json(self, arrays: dict[str, Any] | None = None) -> str:
        """As JSON; arrays, which are no part of it, are put into ``arrays``."""
        plain = _adapter(type(self)).dump_python(self, mode="json", context=arrays)
        return json.dumps(plain, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, arrays: Any = None) -> Self:
        """From what ``to_json`` gave; declined if it is not such a text, with the field's name."""
        try:
            said: Self = _adapter(cls).validate_json(text, context=arrays)
            said.to_json({})
        except ValidationError as problem:
            place = problem.errors(include_url=False, include_input=False)[0]["loc"]
            name = str(place[0]).replace("_", " ") if place else "text"
            raise Declined(f"the {name} cannot be read") from None
        except (BadInput, ValueError, TypeError, RecursionError):
            raise Declined("the text cannot be read") from None
        return said


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _grids(levels: Levels) -> Levels:
    steps = levels.saving_levels, levels.payment_levels
    amounts = levels.sigma_max, levels.payment_max
    if not all(1 <= n <= _MOST_LEVELS for n in steps) or not all(0.0 < x <= 1e30 for x in amounts):
        raise ValueError("out of range")
    return levels


@dataclass(frozen=True)
class AnyInvitation(Checked):
    """What all invitations say. ``work`` is what the contract will say beyond the trade
    (``terms.WORK``)."""

    job: str
    curator_key: PublicKey
    work: dict[str, Any]

    def refuse_other(self, invitation: AnyInvitation) -> None:
        """Decline an invitation to another negotiation than this."""
        if self.to_json() != invitation.to_json():
            raise Declined("the negotiation of this job is another one")


@dataclass(frozen=True)
class GameInvitation(AnyInvitation):
    """To a game by these rules. ``key`` names the pair's stream of random numbers."""

    key: Annotated[int, Field(ge=0, lt=2**64)]
    table: GameRules

    def __post_init__(self) -> None:
        self.table.check()

    @property
    def levels(self) -> Levels:
        return self.table.levels


@dataclass(frozen=True)
class JobInvitation(AnyInvitation):
    """To a job alone: its contracts are to be taken or left."""

    levels: Annotated[Levels, AfterValidator(_grids)]


@dataclass(frozen=True)
class SaleInvitation(JobInvitation):
    """To name a price for one sale, or to take one. ``saving`` is the level that is sold."""

    saving: Annotated[int, Field(ge=1)]

    def __post_init__(self) -> None:
        if self.saving > self.levels.saving_levels:
            raise ValueError("there is no such saving")


@dataclass(frozen=True)
class MenuInvitation(JobInvitation):
    """To take an item of a menu: levels of saving and payment."""

    items: Annotated[tuple[tuple[Level, Level], ...], Field(max_length=_MOST_LEVELS)]

    def __post_init__(self) -> None:
        most = self.levels.saving_levels, self.levels.payment_levels
        if any(saving > most[0] or payment > most[1] for saving, payment in self.items):
            raise ValueError("there are no such levels")


def drawn_up(
    invitation: GameInvitation | JobInvitation,
    owner: str,
    owner_key: str,
    deal: tuple[int, int],
    times: tuple[str, str],
    budget: PrivacyBudget,
    records: int,
) -> Contract:
    """The contract of an invitation's job with an owner, the same for both sides.

    ``deal`` is the levels of saving and payment, ``times`` when it is offered and when it expires.
    """
    (saving, payment), levels = deal, invitation.levels
    sigma = levels.sigma_left(saving)
    stated = {
        **contracted(invitation.work),
        "job": invitation.job,
        "owner": owner,
        "owner_key": owner_key,
        "curator_key": invitation.curator_key,
        "saving": float(levels.savings[saving]),
        "sigma": sigma,
        "payment": to_micro(float(levels.payments[payment]), "payment"),
        "offered_at": times[0],
        "expires_at": times[1],
    }
    return contract_of(stated, replace(budget, sigma=sigma), records)


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
class SaleRecord(Checked):
    """What an owner has answered about prices, a bid or a menu; or its invitation alone.

    ``stayed`` is the lowest payment level at which it stayed, ``left`` the one at which it left;
    ``bid`` is the level that it named; ``item`` is what it took of a menu, -1 for nothing.
    """

    invitation: JobInvitation | SaleInvitation | MenuInvitation
    stayed: int | None = None
    left: int | None = None
    bid: int | None = None
    item: int | None = None

    @classmethod
    def read(cls, path: Path) -> SaleRecord:
        with of_this_version():
            return cls.from_json(path.read_text(encoding="utf-8"))

    def answered(self, payment: int) -> bool | None:
        """What this price was answered before; None if it is the owner's next."""
        if self.bid is not None:
            raise Declined("the owner has named a price")
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

    def deals(self, payment: int = 0) -> list[tuple[int, int]]:
        """The levels that the owner signs at this payment: its trade if it has one, and no
        trade."""
        to, trade = self.invitation, (0, 0)
        if isinstance(to, MenuInvitation) and self.item is not None and self.item >= 0:
            trade = to.items[self.item]
        elif isinstance(to, SaleInvitation) and self.bid is not None:
            if self.bid <= to.levels.payment_levels:
                trade = to.saving, max(self.bid, payment)
        elif isinstance(to, SaleInvitation) and self.stayed is not None and self.left is None:
            trade = to.saving, self.stayed
        return [(0, 0)] if trade == (0, 0) else [trade, (0, 0)]

    def save(self, path: Path) -> None:
        """On disk when this returns, whole or not at all."""
        write_atomic(path, self.to_json(), private=True)


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
