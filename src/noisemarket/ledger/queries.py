"""Queries: the contracts in a ledger, their states and their payments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from noisemarket.errors import BadInput, LedgerError
from noisemarket.formats import infinite
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import Entry
from noisemarket.ledger.money import UNITS
from noisemarket.ledger.store import Ledger

_SOME = 500  # contracts at a time
_STAGES = (entries.OFFERED, entries.SIGNED, entries.VERIFIED, entries.PAID, entries.BROKEN)


@dataclass(frozen=True)
class Standing:
    """A contract and its state; ``weight`` is the owner's part of the mean update, if known."""

    contract: Contract
    state: str
    delivered: int
    missed: int
    refused: int
    kept: bool | None
    paid: int | None
    weight: float | None = None


@dataclass(frozen=True)
class Round:
    """The outcome of one round (delivered, missed or refused), its cost and the reason."""

    round: int
    outcome: str
    rho: float
    reason: str | None


@dataclass(frozen=True)
class Account:
    """All that the ledger holds about one contract."""

    contract: Contract
    state: str
    offered_at: str
    signed_at: str | None
    closed_at: str | None
    owner_signature: str | None
    curator_signature: str | None
    rounds: tuple[Round, ...]
    kept: bool | None
    paid: int | None
    evidence: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    """What the entry that opened the job says about it."""

    def count(self, outcome: str) -> int:
        return sum(entry.outcome == outcome for entry in self.rounds)


@dataclass(frozen=True)
class JobStanding:
    """A job and its state."""

    job: str
    opened_at: str
    curator_key: str
    budget: int
    contracts: int
    signed: int
    paid: int
    broken: int
    settled: bool
    currency: str
    simulated_owners: bool


def jobs(ledger: Ledger) -> Iterator[JobStanding]:
    """All jobs, in the order in which they were opened."""
    for entry in ledger.entries(kinds=[entries.OPENED]):
        found = ledger.counts("job", [entry.job])
        counts = {kind: number for (_, kind), number in found.items()}
        content = entry.content()
        payments = ledger.entries(entry.job, kinds=[entries.PAID])
        yield JobStanding(
            job=entry.job,
            opened_at=entry.recorded_at,
            curator_key=str(content["curator_key"]),
            budget=content["budget"],
            contracts=counts.get(entries.OFFERED, 0),
            signed=counts.get(entries.SIGNED, 0),
            paid=sum(paid.content()["amount"] for paid in payments),
            broken=counts.get(entries.BROKEN, 0),
            settled=entries.SETTLED in counts,
            currency=content["about"].get("currency", UNITS),
            simulated_owners=content["about"].get("owners") == entries.SIMULATED,
        )


def documents(ledger: Ledger, job: str | None = None) -> Iterator[Contract]:
    """The contracts that were offered, of one job or of all, in the order of their offers."""
    for entry in ledger.entries(job, kinds=[entries.OFFERED]):
        yield _document(entry)


def signatures(ledger: Ledger, job: str) -> dict[str, tuple[str, str]]:
    """The owner's and the curator's signature under each of a job's contracts, by its id."""
    found = {}
    for entry in ledger.entries(job, kinds=[entries.SIGNED]):
        content = entry.content()
        both = (str(content["owner_signature"]), str(content["curator_signature"]))
        found[str(entry.contract)] = both
    return found


def contracts(ledger: Ledger, job: str | None = None) -> Iterator[Standing]:
    """Contracts with their states, of one job or of all, in the order of their offers."""
    weights = {entry.job: _weights(entry) for entry in ledger.entries(job, kinds=[entries.OPENED])}
    found = documents(ledger, job)
    while some := list(islice(found, _SOME)):
        yield from _standings(ledger, some, weights)


def find_contract(ledger: Ledger, prefix: str) -> str:
    """The id of the only contract whose id begins with ``prefix``."""
    if not prefix or any(digit not in "0123456789abcdef" for digit in prefix):
        raise BadInput("contract", prefix, "give an id in hexadecimal, or the beginning of one.")
    found = ledger.contract_ids(prefix, 2)
    if not found:
        raise BadInput("contract", prefix, "no contract in this ledger has such an id.")
    if len(found) > 1:
        raise BadInput(
            "contract", prefix, "more than one contract has such an id: give more digits."
        )
    return found[0]


def account(ledger: Ledger, contract: str) -> Account:
    """All that the ledger holds about one contract, by its full id."""
    document: Contract | None = None
    about: dict[str, Any] = {"signed_at": None, "closed_at": None, "kept": None, "paid": None}
    about |= {"owner_signature": None, "curator_signature": None}
    rounds: list[Round] = []
    for entry in ledger.entries(contracts=[contract]):
        content = entry.content()
        if entry.kind == entries.OFFERED:
            document = _document(entry)
            about |= {"state": entries.OFFERED, "offered_at": entry.recorded_at}
        elif entry.kind == entries.SIGNED:
            about |= {"state": entries.SIGNED, "signed_at": entry.recorded_at, **content}
        elif entry.kind in (entries.DELIVERED, entries.MISSED, entries.REFUSED):
            cost, reason = infinite(content["rho"]), content.get("reason")
            rounds.append(Round(content["round"], entry.kind, cost, reason))
        elif entry.kind == entries.VERIFIED:
            about |= {
                "state": entries.VERIFIED,
                "kept": content["kept"],
                "evidence": content["evidence"],
            }
        elif entry.kind in (entries.PAID, entries.BROKEN):
            amount = content.get("amount", 0)
            about |= {"state": entry.kind, "closed_at": entry.recorded_at, "paid": amount}
    if document is None:
        raise BadInput("contract", contract, "is not in this ledger.")
    rounds.sort(key=lambda one: one.round)
    for opened in ledger.entries(document.job, kinds=[entries.OPENED]):
        about["about"] = opened.content()["about"]
    return Account(contract=document, rounds=tuple(rounds), **about)


def row(standing: Standing) -> dict[str, Any]:
    """A contract as a row of plain values: what was agreed, delivered and paid."""
    contract = standing.contract
    return {
        "contract": contract.id,
        "job": contract.job,
        "owner": contract.owner,
        "state": standing.state,
        "saving": contract.saving,
        "sigma": contract.sigma,
        "payment_micro": contract.payment,
        "protection": contract.protection,
        "rounds": contract.rounds,
        "delivered": standing.delivered,
        "missed": standing.missed,
        "refused": standing.refused,
        "kept": standing.kept,
        "paid_micro": standing.paid,
        "weight": standing.weight,
    }


def _weights(opened: Entry) -> dict[str, float]:
    """Each owner's weight, as far as the entry that opened a job says."""
    weights = opened.content()["about"].get("weights", {})
    return {str(owner): float(weight) for owner, weight in weights.items()}


def _standings(
    ledger: Ledger, some: list[Contract], weights: dict[str, dict[str, float]]
) -> Iterator[Standing]:
    ids = [contract.id for contract in some]
    counts = ledger.counts("contract", ids)
    closing = {
        (entry.contract, entry.kind): entry.content()
        for entry in ledger.entries(contracts=ids, kinds=[entries.VERIFIED, entries.PAID])
    }
    for contract in some:
        name = contract.id
        state = [stage for stage in _STAGES if (name, stage) in counts][-1]
        verified, paid = closing.get((name, entries.VERIFIED)), closing.get((name, entries.PAID))
        yield Standing(
            contract=contract,
            state=state,
            delivered=counts.get((name, entries.DELIVERED), 0),
            missed=counts.get((name, entries.MISSED), 0),
            refused=counts.get((name, entries.REFUSED), 0),
            kept=None if verified is None else verified["kept"],
            paid=paid["amount"] if paid else 0 if state == entries.BROKEN else None,
            weight=weights.get(contract.job, {}).get(contract.owner),
        )


def _document(entry: Entry) -> Contract:
    try:
        return Contract.from_dict(entry.content()["contract"])
    except (BadInput, KeyError, TypeError, ValueError):
        raise LedgerError(f"entry {entry.seq} holds no contract: verify the ledger.") from None
