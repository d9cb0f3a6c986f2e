"""Documents that are signed and hashed, and the first of them: the contract.

A document is checked by pydantic and has one canonical form (RFC 8785), for which any language has
a library: anyone can verify a ledger.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Self

import rfc8785
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from noisemarket.errors import BadInput
from noisemarket.formats import finite
from noisemarket.ledger.money import MOST

_HEX = re.compile(r"[0-9a-f]{64}")


def is_key(value: object) -> bool:
    """Whether this is a public key as a contract names it."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _public_key(text: str) -> str:
    if not is_key(text):
        raise ValueError("give a public key as 64 small hexadecimal digits")
    return text


PublicKey = Annotated[str, AfterValidator(_public_key)]
Amount = Annotated[int, Field(ge=0, le=MOST)]
"""Money in micro-units."""


def canonical(document: Any) -> str:
    """A document as canonical JSON (RFC 8785); whole numbers lie within 2^53."""
    return rfc8785.dumps(document).decode()


def parse(text: str | bytes) -> Any:
    """The document of a canonical JSON text."""
    if isinstance(text, bytes):
        text = text.decode()
    try:
        document = _decode(text)
        same = canonical(document) == text
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not same:
        raise ValueError("not canonical JSON")
    return document


class Document(BaseModel):
    """An immutable document: exactly its fields, each of exactly its type; else ``BadInput``."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as problem:
            first = problem.errors()[0]
            field = ".".join(map(str, first["loc"]))
            remedy = first["msg"].removeprefix("Value error, ")
            remedy = re.sub("^(Input|String) should", "it should", remedy)
            raise BadInput(field, first["input"], f"{remedy[0].lower()}{remedy[1:]}.") from None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; what is infinite is None."""
        return self.model_dump()

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The document of what ``to_dict`` gave; its signatures are not checked."""
        kind, fields = cls.__name__.lower(), set(cls.model_fields)
        if not isinstance(values, dict) or set(values) != fields:
            odd = sorted(map(str, fields ^ set(values))) if isinstance(values, dict) else []
            shown = ", ".join(odd) or type(values).__name__
            raise BadInput(kind, shown, f"give exactly the keys of a {kind}.")
        return cls(**values)


def _whole(digits: str) -> float:
    """A number without a point: exact within 2^53, a float beyond, as for every other reader."""
    number = float(digits)
    return int(digits) if abs(number) < 2**53 else number


_decode = json.JSONDecoder(parse_int=_whole).decode


VERSION = 1
MOST_ROUNDS = 1_000_000
_MOST_TEXT = 1000
Bytes = bytes  # inside Contract, ``bytes`` is its method


def moment(name: str, value: object) -> datetime:
    """The time that an ISO 8601 text in UTC names."""
    try:
        if not isinstance(value, str) or len(value) > 40:
            raise ValueError
        time = datetime.fromisoformat(value)
        if time.utcoffset() != timedelta(0):
            raise ValueError
    except ValueError:
        remedy = "give a time in UTC, such as 2030-01-31T12:00:00+00:00."
        raise BadInput(name, value, remedy) from None
    return time


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("give a text of printable characters")
    return text


def _time(text: str, info: ValidationInfo) -> str:
    moment(str(info.field_name), text)
    return text


def _version(number: int) -> int:
    if number != VERSION:
        raise ValueError(f"this noisemarket reads version {VERSION}")
    return number


def _settings(values: object) -> Mapping[str, Any]:
    remedy = "give names with numbers, texts, true or false, or lists of these."
    if not isinstance(values, Mapping):
        raise BadInput("settings", values, remedy)
    frozen: dict[str, Any] = {}
    for name, value in values.items():
        frozen[name] = tuple(value) if isinstance(value, list | tuple) else value
        items = frozen[name] if isinstance(frozen[name], tuple) else (frozen[name],)
        if not (isinstance(name, str) and name and all(map(_plain, (name, *items)))):
            raise BadInput(f"settings.{name}", value, remedy)
    return MappingProxyType(frozen)


def _plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isprintable() and len(value) <= _MOST_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) < 2**53)


Text = Annotated[str, Field(min_length=1, max_length=_MOST_TEXT), AfterValidator(_printable)]
Time = Annotated[str, AfterValidator(_time)]
Number = Annotated[float, Field(ge=0), AfterValidator(abs)]  # no negative zero: it has another text
Cost = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    AfterValidator(abs),
    BeforeValidator(lambda value: math.inf if value is None else value),
    PlainSerializer(finite),
]
"""May be infinite, which JSON writes as null."""
Share = Annotated[float, Field(ge=0, le=1), AfterValidator(abs)]
Settings = Annotated[Mapping[str, Any], PlainValidator(_settings), PlainSerializer(dict)]


class Contract(Document):
    """What an owner and the curator agree on. Nothing in it is secret."""

    job: Text
    owner: Text
    owner_key: PublicKey
    curator_key: PublicKey
    saving: Number
    """How much less noise the owner adds than without the contract."""
    sigma: Number
    """Standard deviation of the noise on its uploads."""
    payment: Amount
    """For the whole job."""
    protection: Text
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
    rho_per_round: Cost
    """Privacy cost (zCDP) of a round."""
    rho_cap: Cost
    """What all rounds may cost together."""
    epsilon: Cost
    """What all rounds come to, at ``delta``."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    neighbours: Text
    """Which two data sets must look alike."""
    protects: Text
    """In words, what the noise hides."""
    offered_at: Time
    expires_at: Time
    """By then it must be signed."""
    nonce: Text
    """Tells the contract from others, see ``nonce_of``."""
    clip: Number | None = None
    """Largest norm of an update."""
    shards: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    settings: Settings = Field(default_factory=dict)
    """What else defines the protection, such as batch, steps and rate."""
    whole_owner: bool = False
    """Whether all records of the owner are protected together."""
    simulated: bool = False
    """Whether the noise comes from a seed, and hides nothing from anyone that knows it."""
    false_alarm: Share = 0.0
    """The chance that the job accuses any honest owner."""
    weight_cap: Share | None = None
    """The largest share of one owner in the mean of a round."""
    count_cap: Number | None = None
    """An owner's records count up to so many times the median of all owners."""
    description: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the public description by which a record becomes features. A contract on records
    that need none does not have the field."""
    version: Annotated[int, AfterValidator(_version)] = VERSION

    @model_validator(mode="after")
    def _expires_after_the_offer(self) -> Self:
        if not moment("expires_at", self.expires_at) > moment("offered_at", self.offered_at):
            raise BadInput("expires_at", self.expires_at, "give a time after offered_at.")
        return self

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        if self.description is None:
            del values["description"]
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        if isinstance(values, dict) and values.get("description", "") is None:
            raise BadInput("contract", "description", "leave it out where it says nothing.")
        known = {"description": None, **values} if isinstance(values, dict) else values
        return super().from_dict(known)

    @property
    def protection_settings(self) -> dict[str, Any]:
        """All that the contract states about its protection, with clip and shards."""
        stated = {**self.settings, "clip": self.clip, "shards": self.shards}
        return {name: value for name, value in stated.items() if value is not None}

    def bytes(self) -> Bytes:
        """The document itself: canonical JSON in UTF-8."""
        return self._bytes

    @classmethod
    def from_bytes(cls, document: Bytes) -> Contract:
        try:
            values = parse(document)
        except (ValueError, TypeError) as problem:
            raise BadInput("contract", str(problem), "give canonical JSON.") from None
        contract = cls.from_dict(values)
        if contract.bytes() != document:
            raise BadInput("contract", contract.owner, "give its canonical bytes.")
        return contract

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self._bytes).hexdigest()

    def owed(self, delivered: int) -> int:
        """What a kept contract pays for so many rounds: their share, rounded down."""
        if not 0 <= delivered <= self.rounds:
            raise BadInput("delivered", delivered, f"the contract has {self.rounds} rounds.")
        return self.payment * delivered // self.rounds

    @cached_property
    def _bytes(self) -> Bytes:
        return canonical(self.to_dict()).encode()

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Contract.from_bytes, (self._bytes,)


def nonce_of(job: str, owner: str) -> str:
    """The nonce of an owner's contract in a job: it has one contract there, and no second."""
    return hashlib.sha256(f"{job}\0{owner}".encode()).hexdigest()[:32]
