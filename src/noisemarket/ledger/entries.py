"""The entries of a ledger: their kinds, their content, and the hash that chains them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.ledger.canonical import canonical
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.ledger_errors import LedgerError
from noisemarket.ledger.money import checked_amount
from noisemarket.plain import finite

OPENED, OFFERED, SIGNED = "opened", "offered", "signed"
BEGUN, DELIVERED, MISSED, REFUSED = "begun", "delivered", "missed", "refused"
VERIFIED, PAID, BROKEN, SETTLED = "verified", "paid", "broken", "settled"
SEALED = "sealed"
ROUND_KINDS = (DELIVERED, MISSED, REFUSED)
KINDS = (OPENED, OFFERED, SIGNED, BEGUN, *ROUND_KINDS, VERIFIED, PAID, BROKEN, SETTLED, SEALED)
"""All kinds of entries: the reference describes each of them."""

CLOSED_ONCE = "closed"
"""Begins the once key that ``paid`` and ``broken`` share: a contract is closed one time."""

FIRST = "0" * 64
"""Stands for the hash before the first entry."""

_DOMAIN = b"noisemarket entry v1\0"
_hashed = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Of texts, whole numbers and null, Python writes exactly what RFC 8785 does, and faster."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What is to be recorded. A job records each ``once`` key at most one time."""

    job: str
    kind: str
    contract: str | None
    once: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What is recorded."""

    seq: int
    job: str
    kind: str
    contract: str | None
    once: str | None
    body: str
    recorded_at: str
    previous: str
    hash: str

    def content(self) -> dict[str, Any]:
        """The body, read."""
        try:
            content = json.loads(self.body)
        except (ValueError, TypeError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise LedgerError(f"entry {self.seq} cannot be read: verify the ledger.")
        return content

    def says(self, new: NewEntry) -> bool:
        """Whether this is that entry, recorded."""
        return all(getattr(self, name) == getattr(new, name) for name in NewEntry.__slots__)


@dataclass(frozen=True, slots=True)
class Head:
    """How long the chain is and the hash that it ends in: noted elsewhere, it pins all of it."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"


def described(entry: Entry | NewEntry) -> str:
    """What an entry is, for errors; of one that was tampered with, not too much."""
    kind = str(entry.kind)[:20]
    return kind if entry.contract is None else f"{kind}, contract {str(entry.contract)[:12]}"


def entry_hash(
    seq: int,
    job: str,
    kind: str,
    contract: str | None,
    once: str | None,
    body: str,
    recorded_at: str,
    previous: str,
) -> str:
    """The hash of an entry: SHA-256 of its fields, as a list in canonical JSON, and a prefix."""
    content = [seq, job, kind, contract, once, body, recorded_at, previous]
    return hashlib.sha256(_DOMAIN + _hashed(content).encode()).hexdigest()


def opened(
    job: str,
    budget: int,
    curator_key: str,
    owner_keys: Mapping[str, str] | None = None,
    **about: Any,
) -> NewEntry:
    """A job begins: its budget in micro-units, and the keys that its contracts must name.

    Without ``owner_keys`` a contract may name any key as its owner's. ``about`` is kept as given.
    """
    body = {
        "budget": checked_amount(budget, "budget"),
        "curator_key": curator_key,
        "owner_keys": None if owner_keys is None else dict(owner_keys),
        "about": about,
    }
    return _new(job, OPENED, None, OPENED, body)


def offered(contract: Contract) -> NewEntry:
    """A contract is offered, in full."""
    return _of(contract, OFFERED, OFFERED, {"contract": contract.to_dict()})


def signed(signed_contract: SignedContract) -> NewEntry:
    """Both have signed."""
    signatures = {
        "owner_signature": signed_contract.owner_signature,
        "curator_signature": signed_contract.curator_signature,
    }
    return _of(signed_contract.contract, SIGNED, SIGNED, signatures)


def begun(job: str, round: int, owners: int, reference: str | None = None) -> NewEntry:
    """A round was charged to so many owners, and uploads are asked for from now on.

    ``reference`` is the digest of the directions along which they will be judged.
    """
    body = {"round": round, "owners": owners, "reference": reference}
    return _new(job, BEGUN, None, f"{BEGUN}:{round}", body)


def delivered(
    contract: Contract, round: int, rho: float | None = None, **evidence: Any
) -> NewEntry:
    """An upload came and was good. ``rho`` is what it cost; by default what the contract says."""
    cost = contract.rho_per_round if rho is None else rho
    return _round(contract, DELIVERED, round, cost, evidence)


def missed(
    contract: Contract, round: int, reason: str, rho: float = 0.0, **evidence: Any
) -> NewEntry:
    """No upload came. ``rho`` is above 0 if the owner had been charged for it nevertheless."""
    return _round(contract, MISSED, round, rho, {"reason": reason, **evidence})


def refused(
    contract: Contract, round: int, reason: str, rho: float | None = None, **evidence: Any
) -> NewEntry:
    """An upload came and could not be used. It was released, so by default it cost all the same."""
    cost = contract.rho_per_round if rho is None else rho
    return _round(contract, REFUSED, round, cost, {"reason": reason, **evidence})


def verified(
    contract: Contract, kept: bool, delivered: int, evidence: Mapping[str, Any] | None = None
) -> NewEntry:
    """The curator's finding about the whole contract, with what it rests on."""
    body = {"kept": kept, "delivered": delivered, "evidence": dict(evidence or {})}
    return _of(contract, VERIFIED, VERIFIED, body)


def paid(contract: Contract, delivered: int) -> NewEntry:
    """The contract is closed and paid by its rule. Shares its key with ``broken``."""
    return _of(contract, PAID, CLOSED_ONCE, {"amount": contract.owed(delivered)})


def broken(contract: Contract, evidence: Mapping[str, Any] | None = None) -> NewEntry:
    """The contract is closed and not paid. Shares its key with ``paid``."""
    return _of(contract, BROKEN, CLOSED_ONCE, {"evidence": dict(evidence or {})})


def settled(job: str, total: int, contracts_paid: int, contracts_broken: int) -> NewEntry:
    """The job is over. Nothing follows."""
    body = {
        "total": checked_amount(total, "total"),
        "contracts_paid": contracts_paid,
        "contracts_broken": contracts_broken,
    }
    return _new(job, SETTLED, None, SETTLED, body)


def _round(
    contract: Contract, kind: str, number: int, rho: float, evidence: Mapping[str, Any]
) -> NewEntry:
    body = {**evidence, "round": number, "rho": finite(rho)}
    return _of(contract, kind, "round", body, f":{number}")


def _of(
    contract: Contract, kind: str, once: str, body: Mapping[str, Any], more: str = ""
) -> NewEntry:
    return _new(contract.job, kind, contract.id, f"{once}:{contract.id}{more}", body)


def _new(
    job: str, kind: str, contract: str | None, once: str | None, body: Mapping[str, Any]
) -> NewEntry:
    try:
        text = canonical(body)
    except (ValueError, TypeError, RecursionError) as problem:
        raise BadInput(f"{kind} entry", str(problem), "give plain JSON values.") from None
    return NewEntry(job, kind, contract, once, text)
