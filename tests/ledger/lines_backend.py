"""A ledger as another package may keep it: a file of lines, one for each transaction."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import chain
from pathlib import Path

from noisemarket.files import exclusive
from noisemarket.ledger.backend import LedgerBackend, Transaction
from noisemarket.ledger.entries import FIRST, Entry, Head
from noisemarket.ledger.ledger_errors import NoLedger


class LinesBackend(LedgerBackend):
    """Reads the whole file for every question: for small ledgers."""

    def __init__(self, where: str, *, create: bool) -> None:
        self._path = Path(where.partition("://")[2])
        if create:
            self._path.touch()
        elif not self._path.exists():
            raise NoLedger("ledger", where, "does not exist.")

    @property
    def name(self) -> str:
        return str(self._path)

    def close(self) -> None:
        pass

    def head(self) -> Head:
        last = Head(0, FIRST)
        for entry in self.entries():
            last = Head(entry.seq, entry.hash)
        return last

    def entries(
        self,
        *,
        job: str | None = None,
        contracts: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        until: int | None = None,
    ) -> Iterator[Entry]:
        for entry in chain.from_iterable(self._transactions()):
            if (
                (job is None or entry.job == job)
                and (contracts is None or entry.contract in contracts)
                and (kinds is None or entry.kind in kinds)
                and after < entry.seq
                and (until is None or entry.seq <= until)
            ):
                yield entry

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with exclusive(self._path, "ledger", wait=True), self._path.open("r+b") as file:
            written = _Lines(self)
            yield written
            lines = file.read().splitlines(keepends=True)
            whole = sum(len(line) for line in lines if line.endswith(b"\n"))
            file.seek(whole)  # a killed writer may have left half a line
            file.truncate()
            file.write(json.dumps([astuple(entry) for entry in written.new]).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _transactions(self) -> Iterator[list[Entry]]:
        for line in self._path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield [Entry(*values) for values in json.loads(line)]


class _Lines(Transaction):
    def __init__(self, backend: LinesBackend) -> None:
        self._backend, self.head, self.new = backend, backend.head(), list[Entry]()

    def recorded(self, job: str, keys: Sequence[str]) -> Iterator[Entry]:
        return (entry for entry in self._backend.entries(job=job) if entry.once in set(keys))

    def entries(self, job: str, after: int) -> Iterator[Entry]:
        return self._backend.entries(job=job, after=after)

    def add(self, entries: Sequence[Entry]) -> None:
        self.new += entries
