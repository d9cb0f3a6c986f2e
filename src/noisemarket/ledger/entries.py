"""The entries of a ledger: their kinds, their content, the hash that chains them, and seals.

A seal is the last entry of its transaction: the curator's signature over its number, job and time
and the hash before it, and with that over every entry so far. So changing an entry and recomputing
all hashes takes the curator's key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.errors import BadInput, LedgerError
from noisemarket.formats import finite
from noisemarket.ledger.contract import Contract, canonical
from noisemarket.ledger.keys import KeyPair, SignedContract, seal_is_valid
from noisemarket.ledger.money import checked_amount

OPENED, OFFERED, SIGNED = "opened", "offered", "signed"
BEGUN, DELIVERED, MISSED, REFUSED = "begun", "delivered", "missed", "refused"
VERIFIED, PAID, BROKEN, SETTLED = "verified", "paid", "broken", "settled"
SEALED = "sealed"
ROUND_KINDS = (DELIVERED, MISSED, REFUSED)
FIELDS: dict[str, set[str] | None] = {
    OPENED: {"budget", "curator_key", "owner_keys", "about"},
    OFFERED: {"contract"},
    SIGNED: {"owner_signature", "curator_signature"},
    BEGUN: {"round", "owners"},
    **dict.fromkeys(ROUND_KINDS),
    VERIFIED: {"kept", "delivered", "evidence"},
    PAID: {"amount"},
    BROKEN: {"evidence"},
    SETTLED: {"total", "contracts_paid", "contracts_broken"},
    SEALED: {"signature"},
}
"""All kinds of entries and their fields; None for the outcomes of rounds, which may say more."""

SIMULATED = "simulated"
"""Owners whose records were dealt out, in what the entry that opens a job says about ``owners``."""

JOB_KINDS = (OPENED, BEGUN, SETTLED, SEALED)
"""Entries that are about a whole job; the others are about a contract."""

FIRST = "0" * 64
"""Stands for the hash before the first entry."""

_DOMAIN = b"noisemarket entry v1\0"
_SEAL = "ledger"  # what the signature of a seal is for
_hashed = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Of texts, whole numbers and null, Python writes exactly what RFC 8785 does, and faster."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to be recorded. A job records each ``once`` key at most one time."""

    job: str
    kind: str
    contract: str | None
    once: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Head:
    """How long the chain is and the hash that it ends in: noted elsewhere, it pins all of it."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head that ``str`` wrote; ValueError if the text is not one."""
        if not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", text):
            raise ValueError("give count:hash, such as a receipt or verification prints it")
        count, _, digest = text.partition(":")
        return cls(int(count), digest)


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded entry."""

    seq: int
    job: str
    kind: str
    contract: str | None
    once: str | None
    body: str
    recorded_at: str
    previous: str
    hash: str

    @classmethod
    def after(cls, head: Head, new: NewEntry, at: str) -> Entry:
        """The recorded form of a new entry that follows a head."""
        content = (new.job, new.kind, new.contract, new.once, new.body)
        fields = (head.count + 1, *content, at, head.hash)
        return cls(*fields, entry_hash(*fields))

    def content(self) -> dict[str, Any]:
        try:
            content = json.loads(self.body)
        except (ValueError, TypeError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise LedgerError(f"entry {self.seq} cannot be read: verify the ledger.")
        return content

    def says(self, new: NewEntry) -> bool:
        """Whether this is the recorded form of a new entry."""
        return all(getattr(self, name) == getattr(new, name) for name in NewEntry.__slots__)


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


def once_key(kind: str, contract: str | None, round: int | None) -> str | None:
    """The key under which an entry is recorded once in its job: a round's outcome, a closing."""
    if kind == SEALED:
        return None
    stem = "round" if kind in ROUND_KINDS else "closed" if kind in (PAID, BROKEN) else kind
    return ":".join(str(part) for part in (stem, contract, round) if part is not None)


def seal_entry(curator: KeyPair, head: Head, job: str, at: str) -> Entry:
    """The entry with which a job's curator seals the chain that ends in this head."""
    signature = curator.seal(_SEAL, _sealed_bytes(head.count + 1, job, at, head.hash))
    return Entry.after(head, _new(job, SEALED, {"signature": signature}), at)


def seal_holds(entry: Entry, signature: str, curator_key: str) -> bool:
    """Whether this is the signature of this public key under all up to this entry."""
    document = _sealed_bytes(entry.seq, entry.job, entry.recorded_at, entry.previous)
    return seal_is_valid(_SEAL, document, curator_key, signature)


def _sealed_bytes(*chained: str | int) -> bytes:
    return canonical(chained).encode()


def opened(
    job: str,
    budget: int,
    curator_key: str,
    owner_keys: Mapping[str, str] | None = None,
    **about: Any,
) -> NewEntry:
    """A job begins. Without ``owner_keys`` a contract may name any key as its owner's."""
    body = {
        "budget": checked_amount(budget, "budget"),
        "curator_key": curator_key,
        "owner_keys": None if owner_keys is None else dict(owner_keys),
        "about": about,
    }
    return _new(job, OPENED, body)


def offered(contract: Contract) -> NewEntry:
    """A contract is offered, in full."""
    return _new(contract, OFFERED, {"contract": contract.to_dict()})


def signed(signed_contract: SignedContract) -> NewEntry:
    """Both have signed."""
    signatures = {
        "owner_signature": signed_contract.owner_signature,
        "curator_signature": signed_contract.curator_signature,
    }
    return _new(signed_contract.contract, SIGNED, signatures)


def begun(job: str, round: int, owners: int) -> NewEntry:
    """A round was charged to so many owners, and uploads are asked for from now on."""
    return _new(job, BEGUN, {"round": round, "owners": owners})


def delivered(
    contract: Contract, round: int, rho: float | None = None, **evidence: Any
) -> NewEntry:
    """An upload came and was good. ``rho`` is its cost, by default the contract's."""
    return _round(contract, DELIVERED, round, rho, evidence)


def missed(contract: Contract, round: int, reason: str, rho: float = 0.0) -> NewEntry:
    """No upload came. ``rho`` is above 0 if the owner had been charged for it nevertheless."""
    return _round(contract, MISSED, round, rho, {"reason": reason})


def refused(contract: Contract, round: int, reason: str, rho: float | None = None) -> NewEntry:
    """An upload came and could not be used. It was released, so it costs ``rho`` all the same."""
    return _round(contract, REFUSED, round, rho, {"reason": reason})


def verified(
    contract: Contract, kept: bool, delivered: int, evidence: Mapping[str, Any] | None = None
) -> NewEntry:
    """The curator's finding about the whole contract, with its evidence."""
    body = {"kept": kept, "delivered": delivered, "evidence": dict(evidence or {})}
    return _new(contract, VERIFIED, body)


def paid(contract: Contract, delivered: int) -> NewEntry:
    """The contract is closed and paid by its rule."""
    return _new(contract, PAID, {"amount": contract.owed(delivered)})


def broken(contract: Contract, evidence: Mapping[str, Any] | None = None) -> NewEntry:
    """The contract is closed and not paid."""
    return _new(contract, BROKEN, {"evidence": dict(evidence or {})})


def settled(job: str, total: int, contracts_paid: int, contracts_broken: int) -> NewEntry:
    """The job is over. Nothing follows."""
    body = {
        "total": checked_amount(total, "total"),
        "contracts_paid": contracts_paid,
        "contracts_broken": contracts_broken,
    }
    return _new(job, SETTLED, body)


def _round(
    contract: Contract, kind: str, number: int, rho: float | None, evidence: Mapping[str, Any]
) -> NewEntry:
    cost = finite(contract.rho_per_round if rho is None else rho)
    return _new(contract, kind, {**evidence, "round": number, "rho": cost})


def _new(about: Contract | str, kind: str, body: Mapping[str, Any]) -> NewEntry:
    """An entry about a contract, or about the job of this name."""
    job, contract = (about, None) if isinstance(about, str) else (about.job, about.id)
    try:
        text = canonical(body)
    except (ValueError, TypeError, RecursionError) as problem:
        raise BadInput(f"{kind} entry", str(problem), "give plain JSON values.") from None
    return NewEntry(job, kind, contract, once_key(kind, contract, body.get("round")), text)
