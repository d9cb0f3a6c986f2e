"""Writing a ledger to files, of any length, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from noisemarket.csv_text import cell_of
from noisemarket.files import open_atomic
from noisemarket.ledger import queries
from noisemarket.ledger.store import Ledger

COLUMNS = (
    *("contract", "job", "owner", "state", "saving", "sigma", "payment_micro", "protection"),
    *("rounds", "delivered", "missed", "refused", "kept", "paid_micro", "weight"),
)


def write_contracts(ledger: Ledger, file: str) -> None:
    """The contracts, one a row: what was agreed, delivered and paid."""
    with _whole(file) as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for standing in queries.contracts(ledger):
            row = queries.row(standing)
            kept = row["kept"]
            row["kept"] = None if kept is None else str(kept).lower()
            writer.writerow({name: cell_of(value) for name, value in row.items()})


def write_chain(ledger: Ledger, file: str) -> None:
    """The chain, as one object: its head and every entry, as recorded."""
    head = ledger.head()
    with _whole(file) as out:
        out.write(f'{{"head": "{head}", "entries": [')
        for number, entry in enumerate(ledger.entries(until=head.count)):
            out.write(",\n" if number else "\n")
            json.dump(asdict(entry), out, ensure_ascii=False)
        out.write("\n]}\n")


@contextmanager
def _whole(file: str) -> Iterator[TextIO]:
    """A text file that appears when it is complete."""
    with open_atomic(Path(file)) as whole:
        out = io.TextIOWrapper(whole, encoding="utf-8", newline="")
        yield out
        out.flush()
        out.detach()
