"""Whether a ledger is the one of a run folder: by its head, its receipts and its contracts.

A ledger that is sound in itself may still be another run's, put in its place.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from noisemarket.errors import BadInput, LedgerBroken, LedgerLost
from noisemarket.files import read_json_lines
from noisemarket.ledger import entries, queries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import Head
from noisemarket.ledger.receipts import Receipt, load_receipt
from noisemarket.ledger.store import Ledger, noted_head
from noisemarket.market.offers import RECEIPTS
from noisemarket.market.run_folder import HEAD, JOB, LASTING, MarketFolder
from noisemarket.owner.folder import CONTRACT
from noisemarket.owner.folder import RECEIPTS as OWN_RECEIPTS


def check_folder(ledger: Ledger, path: Path) -> str:
    """Hold a ledger that was verified against the files of a run folder; ``LedgerBroken`` names the
    first file that it contradicts. Gives in words what was held against it; nothing if the path is
    no folder of a job."""
    if not (path / JOB).is_file():
        return ""
    folder = MarketFolder(path)
    job = folder.manifest().job
    opened = next(ledger.entries(job, kinds=[entries.OPENED]), None)
    if opened is None:
        raise LedgerBroken(None, f"does not hold job {job[:12]} of this folder.")
    note, key = folder.curator / HEAD, str(opened.content()["curator_key"])
    if (head := noted_head(note)) is not None:
        _check_head(ledger, head, note)
    known = {one.contract.id: one for one in queries.contracts(ledger, job)}
    receipts = 0
    for receipt, file in _receipts(folder, job):
        receipts += 1
        standing = known.get(receipt.contract)
        if not receipt.signed_by(key):
            raise LedgerBroken(None, f"is of another curator than {file}.")
        if standing is None:
            raise LedgerBroken(None, f"does not hold the contract of {file}.")
        _check_head(ledger, receipt.noted, file)
        if receipt.stage == entries.SETTLED and (receipt.paid or 0) != (standing.paid or 0):
            reason = f"pays {standing.paid or 0}, and {file} says {receipt.paid or 0}."
            raise LedgerBroken(None, reason)
    contracts = _of_owners(folder, job, CONTRACT)
    for file in contracts:
        try:
            kept = Contract.from_dict(json.loads(file.read_text(encoding="utf-8"))["contract"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError, BadInput):
            raise BadInput("contract", str(file), "cannot be read: restore it.") from None
        if kept.id not in known:
            raise LedgerBroken(None, f"does not hold the contract in {file}.")
    return f"job {job[:12]}, {receipts} receipts and {len(contracts)} contracts of owners"


def _receipts(folder: MarketFolder, job: str) -> Iterator[tuple[Receipt, Path]]:
    if (book := folder.curator / RECEIPTS).is_file():
        found = read_json_lines(book, "receipts", Receipt.from_dict, "restore the file.")
        yield from ((one, book) for one in found)
    for name in OWN_RECEIPTS.values():
        yield from ((load_receipt(file), file) for file in _of_owners(folder, job, name))


def _of_owners(folder: MarketFolder, job: str, name: str) -> list[Path]:
    """Files of a name in the owners' folders, also where these outlive the run."""
    found = [*folder.owners.glob(f"*/{name}")]
    roots = {folder.owners}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((folder.owners / LASTING).read_text(encoding="utf-8"))
        roots.add(Path(kept["folder"]))
    return sorted([*found, *(file for one in roots for file in one.glob(f"*/jobs/{job}/{name}"))])


def _check_head(ledger: Ledger, head: Head, file: Path) -> None:
    try:
        ledger.check_holds(head, str(file))
    except LedgerLost:
        reason = (
            f"does not hold entry {head.count}, which {file} notes: it was cut off or replaced."
        )
        raise LedgerBroken(None, reason) from None
