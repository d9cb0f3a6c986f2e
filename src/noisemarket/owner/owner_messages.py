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

Every message becomes plain settings and arrays (``plain``) and is read back with care (``read``):
what cannot be read is declined. A reply that is not there, or not of its kind, is a ``Refused``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NoReturn, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.protections import Upload
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt, UploadReceipt
from noisemarket.owner.folder import Declined
from noisemarket.owner.invitations import (
    AnyInvitation,
    GameInvitation,
    JobInvitation,
    MenuInvitation,
    SaleInvitation,
)
from noisemarket.owner.terms import Plan
from noisemarket.pricing.messages import ProposalBatch, QuoteBatch

PROTOCOL = 5
"""The version of these messages. It grows when older owners or curators could not read them."""

Config = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
Plain = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Settings (numbers, texts, bytes), and arrays."""

Value = TypeVar("Value")

_LARGEST = 10_000_000  # numbers in a message of the game


@dataclass(frozen=True)
class Message:
    """A message, sent and read field by field; the type of a field says how it is checked."""

    subject: ClassVar[str] = "the message"
    """How a refusal calls it."""

    def plain(self) -> Plain:
        """As settings and arrays."""
        config: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for one in fields(self):
            settings, some = _plain(one.name, getattr(self, one.name))
            config |= settings
            arrays |= some
        return config, arrays

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        """From settings and arrays; declined if they are not such a message."""
        reader, kinds = _Reader(config, arrays, cls.subject), get_type_hints(cls)
        values = {
            one.name: reader.read(one.name, kinds[one.name], one.metadata.get("least", 0))
            for one in fields(cls)
        }
        return cls(**values)


@dataclass(frozen=True)
class Reply(Message):
    """An owner's answer."""


@dataclass(frozen=True)
class Question(Message):
    """A curator's question to an owner."""

    kind: ClassVar[str]
    reply: ClassVar[type[Reply]]


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

    subject = "the key"


@dataclass(frozen=True)
class Proposals(Reply):
    """An owner's proposals."""

    batch: ProposalBatch

    subject = "the proposals"


@dataclass(frozen=True)
class Stay(Reply):
    """Whether the owner sells for the price."""

    stay: bool

    subject = "the answer"


@dataclass(frozen=True)
class Chosen(Reply):
    """A number that the owner names: a payment level, or the item of a menu (-1: none)."""

    number: int = field(metadata={"least": -1})

    subject = "the answer"


@dataclass(frozen=True)
class Signature(Reply):
    """The owner's signature under a contract, in hexadecimal."""

    signature: str

    subject = "the signature"


@dataclass(frozen=True)
class Countersigned(Reply):
    """A receipt with the owner's signature, or a later one that the owner has."""

    receipt: Receipt


@dataclass(frozen=True)
class Update(Reply):
    """The owner's protected update. The curator's screen judges its values."""

    weights: Upload


# Questions


@dataclass(frozen=True)
class KeyQuestion(Question):
    """For the owner's key; and an invitation, for an owner that was asked nothing yet."""

    invitation: JobInvitation

    kind, reply, subject = "query.key", PublicKey, "the invitation"


@dataclass(frozen=True)
class Quotes(Question):
    """A curator's quotes, and the game that they belong to."""

    invitation: GameInvitation
    batch: QuoteBatch

    kind, reply, subject = "query.quotes", Proposals, "the quotes"


@dataclass(frozen=True)
class PriceQuestion(Question):
    """A price, as a payment level, and the sale that it is for."""

    invitation: SaleInvitation
    price: int

    kind, reply, subject = "query.price", Stay, "the price"


@dataclass(frozen=True)
class BidQuestion(Question):
    """For how much the owner sells, as a payment level; K + 1 if it does not."""

    invitation: SaleInvitation

    kind, reply, subject = "query.bid", Chosen, "the question"


@dataclass(frozen=True)
class MenuQuestion(Question):
    """Which item of a menu the owner takes."""

    invitation: MenuInvitation

    kind, reply, subject = "query.menu", Chosen, "the menu"


@dataclass(frozen=True)
class ContractOffer(Question):
    """A contract to be signed, and what the owner needs to do its work."""

    contract: Contract
    plan: Plan

    kind, reply = "query.contract", Signature


@dataclass(frozen=True)
class ContractSigned(Question):
    """A contract with both signatures, and the curator's receipt; none of them believed yet."""

    signed: SignedContract
    receipt: Receipt

    kind, reply, subject = "query.signed", Countersigned, "the signatures"


@dataclass(frozen=True)
class Train(Question):
    """A round of a job, counted from 1, from this global model. ``sigma`` is what the curator
    expects; the owner trains by its own terms, or declines. ``receipt`` is of the upload that came
    last."""

    job: str
    round_number: int
    sigma: float | None
    weights: NDArray[Any]
    receipt: UploadReceipt | None = None

    kind, reply = "train", Update

    def plain(self) -> Plain:
        with np.errstate(over="ignore"):  # a model that has diverged may become infinite
            return self.config(), {"weights": self.weights.astype(np.float32)}

    def config(self) -> dict[str, Any]:
        """The settings alone: the model is the same for all owners."""
        expected = {} if self.sigma is None else {"sigma": self.sigma}
        receipt = _plain("receipt", self.receipt)[0]
        return {"job": self.job, "server-round": self.round_number, **expected, **receipt}

    @classmethod
    def read(cls, config: Config, arrays: Arrays) -> Self:
        reader = _Reader(config, arrays, cls.subject)
        return cls(*round_of(config), reader.weights(), reader.upload_receipt("receipt"))


@dataclass(frozen=True)
class JobSettled(Question):
    """The curator's receipts of what is paid, and of the upload that came last."""

    receipt: Receipt
    upload: UploadReceipt | None = None

    kind, reply = "query.settled", Countersigned


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


def _plain(name: str, value: Any) -> Plain:
    """A field of a message as settings and arrays."""
    match value:
        case AnyInvitation():
            return {name: value.to_json()}, {}
        case QuoteBatch():
            return {"first": value.first}, _smallest(quotes=value.quotes, signs=value.signs)
        case ProposalBatch():
            moves = _smallest(proposals=value.proposals, signed=value.signed)
            return {"first": value.first}, moves
        case Contract():
            return {name: value.bytes()}, {}
        case dict():
            return {name: json.dumps(value, sort_keys=True)}, {}
        case SignedContract():
            both = {"owner": value.owner_signature, "curator": value.curator_signature}
            return {"contract": value.contract.bytes(), **both}, {}
        case Receipt() | UploadReceipt():
            return {name: json.dumps(value.to_dict())}, {}
        case None:
            return {}, {}
        case np.ndarray():
            return {}, {name: value}
    return {name: value}, {}


def _smallest(**moves: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Level numbers in as few bytes as they need."""
    kinds = {name: np.min_scalar_type(int(one.max(initial=0))) for name, one in moves.items()}
    return {name: np.ascontiguousarray(one, kinds[name]) for name, one in moves.items()}


@dataclass(frozen=True)
class _Reader:
    """Reads the fields of one message, each checked."""

    config: Config
    arrays: Arrays
    subject: str

    def read(self, name: str, kind: Any, least: int) -> Any:
        """The field of this name and type; a whole number is at ``least`` so much."""
        if kind is str:
            return self.text(name)
        if kind is bool:
            return self.one_of(bool, name)
        if kind is int:
            return self.whole(name, least)
        if kind is QuoteBatch:
            first, quotes, signs = self.moves("quotes", "signs", dimensions=2)
            return QuoteBatch(first, quotes, signs) if len(quotes) else self.decline()
        if kind is ProposalBatch:
            return ProposalBatch(*self.moves("proposals", "signed", dimensions=1))
        if kind is Contract:
            return self.contract()
        if kind is SignedContract:
            return SignedContract(self.contract(), self.text("owner"), self.text("curator"))
        if kind == Plan:
            return self.plan(name)
        if kind is Receipt:
            return self.receipt(name)
        if kind == UploadReceipt | None:
            return self.upload_receipt(name)
        if kind == Upload:
            return self.weights()
        return kind.from_json(self.text(name))  # an invitation

    def decline(self, subject: str = "") -> NoReturn:
        raise Declined(f"{subject or self.subject} cannot be read") from None

    def one_of(self, kind: type[Value], name: str, subject: str = "") -> Value:
        value = self.config.get(name)
        return value if type(value) is kind else self.decline(subject)

    def text(self, name: str, subject: str = "") -> str:
        value = self.config.get(name)
        return value if isinstance(value, str) else self.decline(subject)

    def whole(self, name: str, least: int = 0) -> int:
        value = self.one_of(int, name)
        return value if value >= least else self.decline()

    def contract(self) -> Contract:
        try:
            return Contract.from_bytes(self.one_of(bytes, "contract", "the contract"))
        except BadInput:
            self.decline("the contract")

    def receipt(self, name: str) -> Receipt:
        try:
            return Receipt.from_json(self.text(name, "the receipt"))
        except BadInput:
            self.decline("the receipt")

    def upload_receipt(self, name: str) -> UploadReceipt | None:
        if name not in self.config:
            return None
        try:
            return UploadReceipt.from_json(self.text(name, "the receipt"))
        except BadInput:
            self.decline("the receipt")

    def plan(self, name: str) -> Plan:
        subject = "the contract's plan"
        try:
            found: Any = json.loads(self.text(name, subject))
        except (ValueError, RecursionError):
            self.decline(subject)
        match found:
            case {"index": int(index), "seed": int(seed), "model": dict(), **rest}:
                sound = type(index) is type(seed) is int and min(index, seed) >= 0
                sound &= not rest or isinstance(rest.pop("description", None), str)
                sound &= not rest
            case _:
                sound = False
        return dict(found) if sound else self.decline(subject)

    def weights(self) -> NDArray[Any]:
        value = self.arrays.get("weights")
        return value if isinstance(value, np.ndarray) else self.decline("the model")

    def moves(
        self, levels: str, signs: str, dimensions: int
    ) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
        """The number of the first move, level numbers, and signs of the same shape."""
        first, found = self.whole("first"), [self.arrays.get(name) for name in (levels, signs)]
        for values in found:
            if not isinstance(values, np.ndarray) or values.ndim != dimensions:
                self.decline()
            if values.size > _LARGEST or values.dtype.kind != "u":
                self.decline()
        drawn, signed = np.asarray(found[0]), np.asarray(found[1])
        if drawn.shape != signed.shape:
            self.decline()
        return first, drawn.astype(np.int64), signed.astype(bool)
