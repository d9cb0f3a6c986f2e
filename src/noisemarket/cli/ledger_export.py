"""Writing a ledger to files, of any length, whole or not at all."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from noisemarket.errors import NoisemarketError
from noisemarket.ledger import queries
from noisemarket.ledger.store import Ledger

COLUMNS = (
    *("contract", "job", "owner", "state", "saving", "sigma", "payment_micro", "protection"),
    *("rounds", "delivered", "missed", "refused", "kept", "paid_micro"),
)


def write_csv(ledger: Ledger, file: str) -> None:
    """The contracts, one a row: what was agreed, delivered and paid."""
    with _whole(file) as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for standing in queries.contracts(ledger):
            row = queries.row(standing)
            kept = row["kept"]
            writer.writerow({**row, "kept": None if kept is None else str(kept).lower()})


def write_json(ledger: Ledger, file: str) -> None:
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
    """A file written beside its place and moved there when it is done."""
    place = Path(file)
    special = place.exists() and not place.is_file()
    beside = place if special else place.with_name(f".{place.name}.new")
    try:
        try:
            with beside.open("w", encoding="utf-8", newline="") as out:
                yield out
                out.flush()
                if not special:
                    os.fsync(out.fileno())
            if not special:
                beside.replace(place)
        except BaseException:
            if not special:
                beside.unlink(missing_ok=True)
            raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise NoisemarketError(f"{place} cannot be written: {reason}.") from None
