"""All that a curator can say to an owner, and an owner's replies: typed values, no transport.

    query.key       an invitation to the job        the owner's public key
    query.quotes    an invitation, quotes           proposals
    query.price     an invitation, a price          whether the owner sells for it
    query.bid       an invitation                   the lowest price for which the owner sells
    query.menu      an invitation with a menu       the item that the owner takes
    query.contract  a contract, an assignment       the owner's signature
    query.signed    a contract, both signatures,    the receipt, signed by the owner
                    and a receipt
    train           job, round, sigma, the model    an update
    query.settled   a receipt of what is paid       the receipt, signed by the owner

Every message becomes plain settings and arrays (``plain``) and is read back with care (``read``):
what cannot be read is declined. A reply that is not there, or not of its kind, is a ``Refused``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.protections import Upload
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.owner.folder import Declined
from noisemarket.owner.invitations import (
    GameInvitation,
    JobInvitation,
    MenuInvitation,
    SaleInvitation,
)
from noisemarket.owner.terms import Assignment
from noisemarket.pricing.messages import ProposalBatch, QuoteBatch

PROTOCOL = 4
"""Which messages these are. It grows when an owner or a curator of before could not read them."""

Config = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
Plain = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Settings (numbers, texts, bytes), and arrays."""

_LARGEST = 10_000_000  # numbers in a message of the game


class Reply(ABC):
    """What an owner answers."""

    @abstractmethod
    def plain(self) -> Plain:
        """As settings and arrays."""

    @classmethod
    @abstractmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        """From settings and arrays.

        Raises:
            Declined: they are not such a reply.
        """


@dataclass(frozen=True)
class Refused(Reply):
    """The owner will not or, if it ``failed``, could not; the reason holds nothing private."""

    reason: str
    failed: bool = False

    def plain(self) -> Plain:
        return {"refused": self.reason}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_text(config, "refused", "the refusal"))


class Question(ABC):
    """What a curator says to an owner."""

    kind: ClassVar[str]
    reply: ClassVar[type[Reply]]

    @abstractmethod
    def plain(self) -> Plain:
        """As settings and arrays."""

    @classmethod
    @abstractmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        """From settings and arrays.

        Raises:
            Declined: they are not such a question.
        """


# Replies


@dataclass(frozen=True)
class PublicKey(Reply):
    """The owner's public key."""

    key: str

    def plain(self) -> Plain:
        return {"key": self.key}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_text(config, "key", "the key"))


@dataclass(frozen=True)
class Proposals(Reply):
    """An owner's proposals."""

    batch: ProposalBatch

    def plain(self) -> Plain:
        moves = {"proposals": self.batch.proposals, "signed": self.batch.signed}
        return {"first": self.batch.first}, _smallest(moves)

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        first = _whole(config, "first", "the proposals")
        savings, both = _levels(arrays, "proposals", 1), _levels(arrays, "signed", 1)
        if savings is None or both is None or savings.shape != both.shape:
            raise Declined("the proposals cannot be read")
        return cls(ProposalBatch(first, savings, both.astype(bool)))


@dataclass(frozen=True)
class Stay(Reply):
    """Whether the owner sells for the price."""

    stay: bool

    def plain(self) -> Plain:
        return {"stay": self.stay}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        if not isinstance(stay := config.get("stay"), bool):
            raise Declined("the answer cannot be read")
        return cls(stay)


@dataclass(frozen=True)
class Chosen(Reply):
    """A number that the owner names: a payment level, or the item of a menu (-1: none)."""

    number: int

    def plain(self) -> Plain:
        return {"number": self.number}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_whole(config, "number", "the answer", least=-1))


@dataclass(frozen=True)
class Signature(Reply):
    """The owner's signature under a contract, in hexadecimal."""

    signature: str

    def plain(self) -> Plain:
        return {"signature": self.signature}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_text(config, "signature", "the signature"))


@dataclass(frozen=True)
class Countersigned(Reply):
    """A receipt with the owner's signature, or a later one that the owner has."""

    receipt: Receipt

    def plain(self) -> Plain:
        return {"receipt": json.dumps(self.receipt.to_dict())}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_receipt(config))


@dataclass(frozen=True)
class Update(Reply):
    """The owner's protected update. What it holds is for the curator's screen to judge."""

    weights: Upload

    def plain(self) -> Plain:
        return {}, {"weights": self.weights}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_array(arrays, "weights"))


# Questions


@dataclass(frozen=True)
class KeyQuestion(Question):
    """Who the owner is, by its key; and what it is invited to, if it was asked nothing yet."""

    invitation: JobInvitation

    kind = "query.key"
    reply = PublicKey

    def plain(self) -> Plain:
        return {"invitation": self.invitation.to_json()}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(JobInvitation.from_json(_text(config, "invitation", "the invitation")))


@dataclass(frozen=True)
class Quotes(Question):
    """A curator's quotes, and the game that they belong to."""

    invitation: GameInvitation
    batch: QuoteBatch

    kind = "query.quotes"
    reply = Proposals

    def plain(self) -> Plain:
        moves = {"quotes": self.batch.quotes, "signs": self.batch.signs}
        first = self.batch.first
        return {"invitation": self.invitation.to_json(), "first": first}, _smallest(moves)

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        drawn, signs = _levels(arrays, "quotes", 2), _levels(arrays, "signs", 2)
        invitation = _text(config, "invitation", "the quotes")
        first = _whole(config, "first", "the quotes")
        if drawn is None or signs is None or drawn.shape != signs.shape or not len(drawn):
            raise Declined("the quotes cannot be read")
        batch = QuoteBatch(first, drawn, signs.astype(bool))
        return cls(GameInvitation.from_json(invitation), batch)


@dataclass(frozen=True)
class PriceQuestion(Question):
    """A price, as a payment level, and the sale that it is for."""

    invitation: SaleInvitation
    price: int

    kind = "query.price"
    reply = Stay

    def plain(self) -> Plain:
        return {"invitation": self.invitation.to_json(), "price": self.price}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        invitation = _text(config, "invitation", "the price")
        price = _whole(config, "price", "the price")
        return cls(SaleInvitation.from_json(invitation), price)


@dataclass(frozen=True)
class BidQuestion(Question):
    """For how much the owner sells, as a payment level; K + 1 if it does not."""

    invitation: SaleInvitation

    kind = "query.bid"
    reply = Chosen

    def plain(self) -> Plain:
        return {"invitation": self.invitation.to_json()}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(SaleInvitation.from_json(_text(config, "invitation", "the question")))


@dataclass(frozen=True)
class MenuQuestion(Question):
    """Which item of a menu the owner takes."""

    invitation: MenuInvitation

    kind = "query.menu"
    reply = Chosen

    def plain(self) -> Plain:
        return {"invitation": self.invitation.to_json()}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(MenuInvitation.from_json(_text(config, "invitation", "the menu")))


@dataclass(frozen=True)
class ContractOffer(Question):
    """A contract to be signed, and what the owner needs to do its work."""

    contract: Contract
    assignment: Assignment

    kind = "query.contract"
    reply = Signature

    def plain(self) -> Plain:
        plan = json.dumps(asdict(self.assignment), sort_keys=True)
        return {"contract": self.contract.bytes(), "plan": plan}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        try:
            assignment = Assignment(**json.loads(_text(config, "plan", "the contract's plan")))
            numbers = assignment.index, assignment.seed
            sound = all(type(one) is int and one >= 0 for one in numbers)
            sound = sound and isinstance(assignment.model, dict)
        except (ValueError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise Declined("the contract's plan cannot be read")
        return cls(_contract(config), assignment)


@dataclass(frozen=True)
class ContractSigned(Question):
    """A contract with both signatures, and the curator's receipt; none of them believed yet."""

    signed: SignedContract
    receipt: Receipt

    kind = "query.signed"
    reply = Countersigned

    def plain(self) -> Plain:
        both = self.signed
        return {
            "contract": both.contract.bytes(),
            "owner": both.owner_signature,
            "curator": both.curator_signature,
            "receipt": json.dumps(self.receipt.to_dict()),
        }, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        owner, curator = (_text(config, one, "the signatures") for one in ("owner", "curator"))
        return cls(SignedContract(_contract(config), owner, curator), _receipt(config))


@dataclass(frozen=True)
class Train(Question):
    """A round of a job, counted from 1, from this global model. ``sigma`` is what the curator
    expects; the owner trains by its own terms, or declines."""

    job: str
    round_number: int
    sigma: float | None
    weights: NDArray[Any]

    kind = "train"
    reply = Update

    def plain(self) -> Plain:
        with np.errstate(over="ignore"):  # a model that has diverged may become infinite
            return self.config(), {"weights": self.weights.astype(np.float32)}

    def config(self) -> dict[str, Any]:
        """The settings alone: the model is the same for all owners."""
        expected = {} if self.sigma is None else {"sigma": self.sigma}
        return {"job": self.job, "server-round": self.round_number, **expected}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(*round_of(config), _array(arrays, "weights"))


@dataclass(frozen=True)
class JobSettled(Question):
    """The curator's receipt of what is paid."""

    receipt: Receipt

    kind = "query.settled"
    reply = Countersigned

    def plain(self) -> Plain:
        return {"receipt": json.dumps(self.receipt.to_dict())}, {}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        return cls(_receipt(config))


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


def round_of(config: Config) -> tuple[str, int, float | None]:
    """The job, the round and the expected sigma of a message, each checked."""
    job, sigma, number = (config.get(name) for name in ("job", "sigma", "server-round"))
    if not isinstance(job, str):
        raise Declined("the message names no job")
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 2**31:
        raise Declined("the message names no round")
    if sigma is not None and not isinstance(sigma, float):
        raise Declined("sigma is not a number")
    return job, number, sigma


def _text(config: Config, name: str, what: str) -> str:
    if not isinstance(value := config.get(name), str):
        raise Declined(f"{what} cannot be read")
    return value


def _whole(config: Config, name: str, what: str, least: int = 0) -> int:
    value = config.get(name)
    if type(value) is not int or value < least:
        raise Declined(f"{what} cannot be read")
    return value


def _contract(config: Config) -> Contract:
    document = config.get("contract")
    try:
        if isinstance(document, bytes):
            return Contract.from_bytes(document)
    except BadInput:
        pass
    raise Declined("the contract cannot be read")


def _receipt(config: Config) -> Receipt:
    try:
        return Receipt.from_json(_text(config, "receipt", "the receipt"))
    except BadInput:
        raise Declined("the receipt cannot be read") from None


def _array(arrays: Arrays, name: str) -> NDArray[Any]:
    if not isinstance(value := arrays.get(name), np.ndarray):
        raise Declined("the model cannot be read")
    return value


def _smallest(moves: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Level numbers in as few bytes as they need."""
    kinds = {name: np.min_scalar_type(int(one.max(initial=0))) for name, one in moves.items()}
    return {name: np.ascontiguousarray(one, kinds[name]) for name, one in moves.items()}


def _levels(arrays: Arrays, name: str, dimensions: int) -> NDArray[np.int64] | None:
    """Level numbers; None if they are not."""
    values = arrays.get(name)
    if not isinstance(values, np.ndarray) or values.ndim != dimensions or values.size > _LARGEST:
        return None
    return values.astype(np.int64) if values.dtype.kind == "u" else None
