"""Settling a job: each contract is found kept or broken, then paid or not. Exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import NewEntry, broken, paid, settled, verified
from noisemarket.ledger.queries import documents, signatures
from noisemarket.ledger.store import Ledger


@dataclass(frozen=True)
class Verdict:
    """The curator's finding about one signed contract, with its evidence."""

    contract: str
    kept: bool
    delivered: int
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settlement:
    """The payments of a settled job."""

    job: str
    total: int
    payments: Mapping[str, int]
    broken: tuple[str, ...]


def settle(
    ledger: Ledger, job: str, verdicts: Iterable[Verdict], *, batch: int | None = None
) -> Settlement:
    """Verify, then pay or break, every signed contract of the job; then close the job.

    Idempotent: called again with the same verdicts, in this or in another process, even at the same
    time, it records nothing twice. ``batch`` is the number of contracts in a transaction, by
    default all. If the job was settled with other verdicts, ``LedgerConflict`` is raised.
    """
    if batch is not None and batch < 1:
        raise BadInput("batch", batch, "give at least 1.")
    given = list(verdicts)
    contracts = _matched(ledger, job, given)
    entries: list[NewEntry] = []
    payments: dict[str, int] = {}
    losers: list[str] = []
    steps: list[list[NewEntry]] = [entries]
    for number, verdict in enumerate(given):
        contract = contracts[verdict.contract]
        if batch is not None and number and number % batch == 0:
            entries = []
            steps.append(entries)
        entries.append(verified(contract, verdict.kept, verdict.delivered, verdict.evidence))
        if verdict.kept:
            payments[contract.id] = contract.owed(verdict.delivered)
            entries.append(paid(contract, verdict.delivered))
        else:
            losers.append(contract.id)
            entries.append(broken(contract, verdict.evidence))
    total = sum(payments.values())
    entries.append(settled(job, total, len(payments), len(losers)))
    for step in steps:
        ledger.append(step)
    return Settlement(job, total, payments, tuple(losers))


def _matched(ledger: Ledger, job: str, verdicts: list[Verdict]) -> dict[str, Contract]:
    """The job's signed contracts, if the verdicts are about exactly these."""
    wanted = set(signatures(ledger, job))
    seen: set[str] = set()
    for verdict in verdicts:
        if verdict.contract not in wanted:
            raise BadInput("verdict", verdict.contract, f"job {job} has no such signed contract.")
        if verdict.contract in seen:
            raise BadInput("verdict", verdict.contract, "give one verdict per contract.")
        seen.add(verdict.contract)
    if missing := wanted - seen:
        raise BadInput("verdict", min(missing), "give a verdict for every signed contract.")
    return {contract.id: contract for contract in documents(ledger, job) if contract.id in seen}
