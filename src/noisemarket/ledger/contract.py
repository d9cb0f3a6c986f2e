"""The contract: an immutable document with one canonical form, which is what both sides sign."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.formats import finite, infinite
from noisemarket.ledger.canonical import canonical, parse
from noisemarket.ledger.money import checked_amount

VERSION = 1
PRO_RATA = "pro_rata"
ALL_ROUNDS = "all_rounds"
MISSED_ROUNDS = (PRO_RATA, ALL_ROUNDS)
"""What is paid for missed rounds: the delivered share, rounded down; or nothing unless all came."""


MOST_ROUNDS = 1_000_000
_MOST_TEXT = 1000
Bytes = bytes  # inside Contract, ``bytes`` is its method
_HEX = re.compile(r"[0-9a-f]{64}")
_NUMBERS = ("saving", "sigma", "rho_per_round", "rho_cap", "epsilon", "delta")
_MAY_BE_INFINITE = ("rho_per_round", "rho_cap", "epsilon")
_TEXTS = ("job", "owner", "protection", "neighbours", "protects", "nonce")


@dataclass(frozen=True)
class Contract:
    """What an owner and the curator agree on. Nothing in it is secret.

    Args:
        job: the name of the job.
        owner: the name of the owner.
        owner_key: the owner's public key, in hexadecimal.
        curator_key: the curator's public key, in hexadecimal.
        saving: how much less noise the owner adds than without the contract.
        sigma: standard deviation of the noise on its uploads.
        payment: for the whole job, in micro-units.
        protection: the name of the protection.
        rounds: rounds of the job.
        rho_per_round: privacy cost (zCDP) of a round; may be infinite, as the next two.
        rho_cap: what all rounds may cost together.
        epsilon: what all rounds come to, at ``delta``.
        delta: between 0 and 1.
        neighbours: which two data sets must look alike.
        protects: in words, what the noise hides.
        offered_at: time of the offer, ISO 8601 in UTC.
        expires_at: time by which it must be signed, ISO 8601 in UTC.
        nonce: tells the contract from others, see ``nonce_of``.
        clip: largest norm of an update; None if there is none.
        shards: number of shards; None if there are none.
        settings: what else defines the protection, such as batch, steps and rate.
        whole_owner: whether all records of the owner are protected together.
        simulated: whether the noise comes from a seed, and hides nothing from who knows it.
        missed_rounds: what is paid if rounds are missed, one of ``MISSED_ROUNDS``.
        minimum_share: share of the rounds below which nothing is paid.
        false_alarm: the chance that the job accuses any honest owner.
        version: of this form.

    Raises:
        BadInput: a value is out of range; names the field.
    """

    job: str
    owner: str
    owner_key: str
    curator_key: str
    saving: float
    sigma: float
    payment: int
    protection: str
    rounds: int
    rho_per_round: float
    rho_cap: float
    epsilon: float
    delta: float
    neighbours: str
    protects: str
    offered_at: str
    expires_at: str
    nonce: str
    clip: float | None = None
    shards: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    whole_owner: bool = False
    simulated: bool = False
    missed_rounds: str = PRO_RATA
    minimum_share: float = 0.0
    false_alarm: float = 0.0
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION or isinstance(self.version, bool):
            raise BadInput("version", self.version, f"this noisemarket reads version {VERSION}.")
        for name in _TEXTS:
            _text(name, getattr(self, name))
        for name in ("owner_key", "curator_key"):
            if not is_key(key := getattr(self, name)):
                raise BadInput(name, key, "give a public key as 64 small hexadecimal digits.")
        for name in _NUMBERS:
            value = _number(name, getattr(self, name), infinite=name in _MAY_BE_INFINITE)
            object.__setattr__(self, name, value)
        if not 0.0 < self.delta < 1.0:
            raise BadInput("delta", self.delta, "give a number between 0 and 1.")
        for name in ("minimum_share", "false_alarm"):
            value = _number(name, getattr(self, name))
            if value > 1.0:
                raise BadInput(name, value, "give a share from 0 to 1.")
            object.__setattr__(self, name, value)
        if self.clip is not None:
            object.__setattr__(self, "clip", _number("clip", self.clip))
        if self.shards is not None:
            _whole("shards", self.shards, 2**53 - 1)
        checked_amount(self.payment, "payment")
        _whole("rounds", self.rounds, MOST_ROUNDS)
        for name in ("whole_owner", "simulated"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(name, getattr(self, name), "give true or false.")
        if self.missed_rounds not in MISSED_ROUNDS:
            choices = ", ".join(MISSED_ROUNDS)
            raise BadInput("missed_rounds", self.missed_rounds, f"choose one of: {choices}.")
        if not moment("expires_at", self.expires_at) > moment("offered_at", self.offered_at):
            raise BadInput("expires_at", self.expires_at, "give a time after offered_at.")
        settings = MappingProxyType(_settings("settings", self.settings))
        object.__setattr__(self, "settings", settings)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; what is infinite is None."""
        values = {name: getattr(self, name) for name in _FIELDS}
        for name in _MAY_BE_INFINITE:
            values[name] = finite(values[name])
        values["settings"] = dict(self.settings)
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Contract:
        """The contract of what ``to_dict`` gave.

        Raises:
            BadInput: a key is missing or unknown, or a value is out of range.
        """
        if not isinstance(values, dict) or set(values) != set(_FIELDS):
            odd = sorted(map(str, set(_FIELDS) ^ set(values))) if isinstance(values, dict) else []
            shown = ", ".join(odd) or type(values).__name__
            raise BadInput("contract", shown, "give exactly the keys of a contract.")
        try:
            numbers = {name: infinite(values[name]) for name in _MAY_BE_INFINITE}
        except ValueError as problem:
            raise BadInput("contract", str(problem), "give a number, or null for none.") from None
        return cls(**{**values, **numbers})

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
        """The contract of a document.

        Raises:
            BadInput: these are not exactly the bytes of a contract.
        """
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
        """The SHA-256 of the document, in hexadecimal."""
        return hashlib.sha256(self._bytes).hexdigest()

    def owed(self, delivered: int) -> int:
        """What the owner is paid, in micro-units, if it kept the contract for so many rounds."""
        return owed(self.payment, self.rounds, self.missed_rounds, self.minimum_share, delivered)

    @cached_property
    def _bytes(self) -> Bytes:
        return canonical(self.to_dict()).encode()

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Contract.from_bytes, (self._bytes,)


_FIELDS = tuple(entry.name for entry in fields(Contract))


def owed(
    payment: int, rounds: int, missed_rounds: str, minimum_share: float, delivered: int
) -> int:
    """A contract's payment for so many rounds. The share counts as the decimal it is written as."""
    if not 0 <= delivered <= rounds:
        raise BadInput("delivered", delivered, f"the contract has {rounds} rounds.")
    if missed_rounds == ALL_ROUNDS:
        return payment if delivered == rounds else 0
    if delivered < Fraction(repr(minimum_share)) * rounds:
        return 0
    return payment * delivered // rounds


def nonce_of(job: str, owner: str) -> str:
    """The nonce of an owner's contract in a job: it has one contract there, and no second."""
    return hashlib.sha256(f"{job}\0{owner}".encode()).hexdigest()[:32]


def is_key(value: object) -> bool:
    """Whether this is a public key as a contract names it."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


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


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise BadInput(name, value, "give a text of printable characters.")
    if len(value) > _MOST_TEXT:
        raise BadInput(name, value, f"give at most {_MOST_TEXT} characters.")


def _number(name: str, value: object, *, infinite: bool = False) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        number = float(value) + 0.0  # no negative zero: it has another text
        if not number >= 0.0 or (math.isinf(number) and not infinite):
            raise ValueError
    except (ValueError, OverflowError):
        kind = "number" if infinite else "finite number"
        raise BadInput(name, value, f"give a {kind} that is not negative.") from None
    return number


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadInput(name, value, f"give a whole number from 1 to {most}.")


def _settings(field: str, values: object) -> dict[str, Any]:
    remedy = "give names with numbers, texts, true or false, or lists of these."
    if not isinstance(values, Mapping):
        raise BadInput(field, values, remedy)
    kept: dict[str, Any] = {}
    for name, value in values.items():
        _text("name of a setting", name)
        kept[name] = tuple(value) if isinstance(value, list | tuple) else value
        for item in kept[name] if isinstance(kept[name], tuple) else [kept[name]]:
            finite = not isinstance(item, float) or math.isfinite(item)
            small = not isinstance(item, int) or abs(item) < 2**53
            if not (item is None or isinstance(item, str | int | float)) or not (finite and small):
                raise BadInput(f"{field}.{name}", value, remedy)
            if isinstance(item, str) and item:
                _text(f"{field}.{name}", item)
    return kept
