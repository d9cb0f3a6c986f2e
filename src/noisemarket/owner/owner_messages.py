"""All that a curator can say to an owner, and an owner's replies: typed values, no transport.

    query.key       an invitation to the job        the owner's public key
    query.quotes    an invitation, quotes           proposals
    query.price     an invitation, a price          whether the owner sells for it
    query.bid       an invitation                   the lowest price for which the owner sells
    query.menu      an invitation with a menu       the item that the owner takes
    query.contract  a contract, an assignment       the owner's signature
    query.signed    a contract, both signatures,    the receipt, signed by the owner
                    and a receipt
    train           job, round, sigma, the model,   an update
                    a receipt of the last upload
    query.settled   a receipt of what is paid, and  the receipt, signed by the owner
                    one of the last upload

Every message becomes a text of JSON and arrays (``plain``) and is read back with care (``read``):
what cannot be read is declined. A reply that is not there, or not of its kind, is a ``Refused``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer, PlainValidator

from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt, UploadReceipt
from noisemarket.owner.folder import Declined
from noisemarket.owner.invitations import (
    Checked,
    GameInvitation,
    JobInvitation,
    Level,
    MenuInvitation,
    SaleInvitation,
)
from noisemarket.owner.terms import Plan
from noisemarket.pricing.messages import ProposalBatch, QuoteBatch

PROTOCOL = 6
"""The version of these messages. It grows when older owners or curators could not read them."""

Config = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
Plain = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Settings (numbers, texts, bytes), and arrays."""

_LARGEST = 10_000_000  # numbers in a message of the game


@dataclass(frozen=True)
class Message(Checked):
    """A message; the types of its fields say how it is checked."""

    def plain(self) -> Plain:
        """As settings and arrays."""
        arrays: dict[str, NDArray[Any]] = {}
        return {"message": self.to_json(arrays)}, arrays

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        """From settings and arrays; declined if they are not such a message."""
        text = config.get("message")
        if not isinstance(text, str):
            raise Declined("the message cannot be read")
        return cls.from_json(text, arrays)


@dataclass(frozen=True)
class Reply(Message):
    """An owner's answer."""


@dataclass(frozen=True)
class Question(Message):
    """A curator's question to an owner."""

    kind: ClassVar[str]
    reply: ClassVar[type[Reply]]


# Fields that are arrays, and are read with care


def _write_moves(batch: QuoteBatch | ProposalBatch, info: Any) -> int:
    """Level numbers and signs as arrays, in as few bytes as they need; the text has the first."""
    first, *moves = vars(batch).items()
    for name, values in moves:
        kind = np.min_scalar_type(int(values.max(initial=0)))
        info.context[name] = np.ascontiguousarray(values, kind)
    return int(first[1])


def _moves(
    first: object, info: Any, *names: str, dimensions: int
) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
    """The number of the first move, level numbers, and signs of the same shape."""
    if type(first) is not int or first < 0:
        raise ValueError("no first move")
    levels, signs = (info.context.get(name) for name in names)
    for one in (levels, signs):
        if not isinstance(one, np.ndarray) or (one.ndim, one.dtype.kind) != (dimensions, "u"):
            raise ValueError("no moves")
    if levels.shape != signs.shape or levels.size > _LARGEST:
        raise ValueError("no moves for all signs, or too many")
    return first, levels.astype(np.int64), signs.astype(bool)


def _quotes(first: object, info: Any) -> QuoteBatch:
    batch = QuoteBatch(*_moves(first, info, "quotes", "signs", dimensions=2))
    if not len(batch):
        raise ValueError("no quotes")
    return batch


def _proposals(first: object, info: Any) -> ProposalBatch:
    return ProposalBatch(*_moves(first, info, "proposals", "signed", dimensions=1))


def _write_weights(weights: NDArray[Any], info: Any) -> str:
    info.context["weights"] = weights
    return "weights"


def _weights(_: object, info: Any) -> NDArray[Any]:
    weights = info.context.get("weights")
    if not isinstance(weights, np.ndarray):
        raise ValueError("no weights")
    return weights


def _plan(found: Any) -> Plan:
    match found:
        case {"index": int(index), "seed": int(seed), "model": dict(), **rest}:
            sound = type(index) is type(seed) is int and min(index, seed) >= 0
            sound &= isinstance(rest.pop("description", ""), str) and not rest
            if sound:
                return dict(found)
    raise ValueError("no plan")


Weights = Annotated[NDArray[Any], PlainValidator(_weights), PlainSerializer(_write_weights)]


# Replies


@dataclass(frozen=True)
class Refused(Reply):
    """The owner will not or, if it ``failed``, could not; the reason holds nothing private. It is
    sent as an error, not as a message."""

    reason: str
    failed: bool = False


@dataclass(frozen=True)
class PublicKey(Reply):
    """The owner's public key."""

    key: str


@dataclass(frozen=True)
class Proposals(Reply):
    """An owner's proposals."""

    batch: Annotated[ProposalBatch, PlainValidator(_proposals), PlainSerializer(_write_moves)]


@dataclass(frozen=True)
class Stay(Reply):
    """Whether the owner sells for the price."""

    stay: bool


@dataclass(frozen=True)
class Chosen(Reply):
    """A number that the owner names: a payment level, or the item of a menu (-1: none)."""

    number: Annotated[int, Field(ge=-1)]


@dataclass(frozen=True)
class Signature(Reply):
    """The owner's signature under a contract, in hexadecimal."""

    signature: str


@dataclass(frozen=True)
class Countersigned(Reply):
    """A receipt with the owner's signature, or a later one that the owner has."""

    receipt: Receipt


@dataclass(frozen=True)
class Update(Reply):
    """The owner's protected update. The curator's screen judges its values."""

    weights: Weights


# Questions


@dataclass(frozen=True)
class KeyQuestion(Question):
    """For the owner's key; and an invitation, for an owner that was asked nothing yet."""

    kind, reply = "query.key", PublicKey

    invitation: JobInvitation


@dataclass(frozen=True)
class Quotes(Question):
    """A curator's quotes, and the game that they belong to."""

    kind, reply = "query.quotes", Proposals

    invitation: GameInvitation
    batch: Annotated[QuoteBatch, PlainValidator(_quotes), PlainSerializer(_write_moves)]


@dataclass(frozen=True)
class PriceQuestion(Question):
    """A price, as a payment level, and the sale that it is for."""

    kind, reply = "query.price", Stay

    invitation: SaleInvitation
    price: Level


@dataclass(frozen=True)
class BidQuestion(Question):
    """For how much the owner sells, as a payment level; K + 1 if it does not."""

    kind, reply = "query.bid", Chosen

    invitation: SaleInvitation


@dataclass(frozen=True)
class MenuQuestion(Question):
    """Which item of a menu the owner takes."""

    kind, reply = "query.menu", Chosen

    invitation: MenuInvitation


@dataclass(frozen=True)
class ContractOffer(Question):
    """A contract to be signed, and what the owner needs to do its work."""

    kind, reply = "query.contract", Signature

    contract: Contract
    plan: Annotated[Plan, PlainValidator(_plan)]


@dataclass(frozen=True)
class ContractSigned(Question):
    """A contract with both signatures, and the curator's receipt; none of them believed yet."""

    kind, reply = "query.signed", Countersigned

    signed: SignedContract
    receipt: Receipt


@dataclass(frozen=True)
class Train(Question):
    """A round of a job, counted from 1, from this global model. ``sigma`` is what the curator
    expects; the owner trains by its own terms, or declines. ``receipt`` is of the upload that came
    last."""

    kind, reply = "train", Update

    job: str
    round_number: Annotated[int, Field(ge=1, lt=2**31)]
    sigma: float | None
    weights: Weights
    receipt: UploadReceipt | None = None


@dataclass(frozen=True)
class JobSettled(Question):
    """The curator's receipts of what is paid, and of the upload that came last."""

    kind, reply = "query.settled", Countersigned

    receipt: Receipt
    upload: UploadReceipt | None = None


QUESTIONS: dict[str, type[Question]] = {
    one.kind: one
    for one in (
        KeyQuestion, Quotes, PriceQuestion, BidQuestion, MenuQuestion, ContractOffer,
        ContractSigned, Train, JobSettled,
    )
}  # fmt: skip
"""All questions, by their kind."""


def check_protocol(config: Config) -> None:
    """Decline what is of another protocol. What names none, such as an app of one's own, passes."""
    theirs = config.get("protocol", PROTOCOL)
    if theirs != PROTOCOL:
        said = theirs if isinstance(theirs, int) else "another"
        raise Declined(
            f"the curator speaks protocol {said}, this owner {PROTOCOL}: install its noisemarket"
        )
