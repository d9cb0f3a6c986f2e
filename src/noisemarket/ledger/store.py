"""The ledger: appends, each thing once, in one chain, whoever else is writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, insert, select, update

from noisemarket.errors import BadInput
from noisemarket.ledger.database import Database
from noisemarket.ledger.entries import SETTLED, Entry, Head, NewEntry, entry_hash
from noisemarket.ledger.history import InvalidEntry, JobHistory, TooDear
from noisemarket.ledger.ledger_errors import LedgerConflict, LedgerError, OverBudget
from noisemarket.ledger.migrations import (
    ENTRIES,
    HEAD,
    MIGRATIONS,
    Migration,
    migrate,
    refuse_newer,
    version,
)

PAGE = 2000
"""Entries that are read at a time."""

_MOST_NAMES = 500  # in one query
_ROW = (
    *(ENTRIES.c.seq, ENTRIES.c.job, ENTRIES.c.kind, ENTRIES.c.contract, ENTRIES.c.once),
    *(ENTRIES.c.body, ENTRIES.c.recorded_at, ENTRIES.c.previous, ENTRIES.c.hash),
)


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def open_ledger(
    where: str | Path,
    *,
    create: bool = True,
    clock: Callable[[], str] = now,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> Ledger:
    """The ledger in a run folder, in an SQLite file, or at a ``postgresql://`` URL.

    It is made if it is not there and its tables are brought up to date, unless ``create`` is false:
    then nothing is changed by opening, and there must be one.
    """
    database = Database(where, create=create)
    try:
        if create:
            with database.setting_up() as connection:
                migrate(connection, database.name, migrations)
        else:
            with database.reading() as connection:
                reached = version(connection)
            if not reached:
                raise BadInput("ledger", database.name, "is no ledger.")
            refuse_newer(reached, database.name, migrations)
    except BaseException:
        database.close()
        raise
    return Ledger(database, clock)


class Ledger:
    """An open ledger. Use it in one thread; other processes may write to it meanwhile."""

    def __init__(self, database: Database, clock: Callable[[], str] = now) -> None:
        self._database = database
        self._clock = clock
        self._histories: dict[str, tuple[int, JobHistory]] = {}

    @property
    def name(self) -> str:
        """Where it is, without any password."""
        return self._database.name

    def close(self) -> None:
        """Let go of it."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def head(self) -> Head:
        """Length and last hash. Note them elsewhere: ``verify`` holds the ledger against them."""
        with self._database.reading() as connection:
            row = connection.execute(select(HEAD.c.length, HEAD.c.hash)).one_or_none()
        if row is None:
            raise LedgerError(f"ledger {self.name} has lost its head: verify it.")
        return Head(row.length, row.hash)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A short transaction for questions in SQL."""
        with self._database.reading() as connection:
            yield connection

    def append(self, entries: Iterable[NewEntry], at: str | None = None) -> tuple[Entry, ...]:
        """Record all of these, or none; gives them back as recorded, in the order given.

        What its once key says is there already is not recorded again; if it says something else,
        that is a LedgerConflict, as is whatever cannot follow what the job has seen so far.
        """
        new = list(entries)
        if not new:
            return ()
        try:
            with self._database.writing() as (connection, count, last):
                return self._append(connection, new, Head(count, last), at or self._clock())
        except BaseException:
            self._histories.clear()  # they may have been told what was then not written
            raise

    def entries(
        self,
        job: str | None = None,
        *,
        contract: str | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        until: int | None = None,
    ) -> Iterator[Entry]:
        """Recorded entries in their order, read page by page: any number in constant memory."""
        query = select(*_ROW).order_by(ENTRIES.c.seq).limit(PAGE)
        if job is not None:
            query = query.where(ENTRIES.c.job == job)
        if contract is not None:
            query = query.where(ENTRIES.c.contract == contract)
        if kinds is not None:
            query = query.where(ENTRIES.c.kind.in_(kinds))
        if until is not None:
            query = query.where(ENTRIES.c.seq <= until)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(query.where(ENTRIES.c.seq > after)).all()
            yield from map(_entry, rows)
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    def _append(
        self, connection: Connection, new: list[NewEntry], head: Head, at: str
    ) -> tuple[Entry, ...]:
        known = self._recorded(connection, new)
        recorded: list[Entry] = []
        rows: list[dict[str, object]] = []
        seq, last = head.count, head.hash
        for entry in new:
            name = (entry.job, entry.once)
            if entry.once is not None and name in known:
                if not known[name].says(entry):
                    raise LedgerConflict(
                        f"ledger {self.name} has something else recorded as {_short(entry)} of "
                        f"job {entry.job}; nothing was written."
                    )
                recorded.append(known[name])
                continue
            self._tell(connection, entry, head.count, at)
            seq += 1
            said = (seq, entry.job, entry.kind, entry.contract, entry.once, entry.body, at, last)
            done = Entry(*said, entry_hash(*said))
            last = done.hash
            recorded.append(done)
            rows.append({column.name: getattr(done, column.name) for column in _ROW})
            known[name] = done
        if rows:
            connection.execute(insert(ENTRIES), rows)
            connection.execute(update(HEAD).values(length=seq, hash=last))
            for job in {entry.job for entry in new} & self._histories.keys():
                _, history = self._histories.pop(job)
                if history.stage != SETTLED:
                    self._histories[job] = (seq, history)
        return tuple(recorded)

    def _tell(self, connection: Connection, entry: NewEntry, count: int, at: str) -> None:
        """Hold an entry against its job's history, which is first brought up to date."""
        told, history = self._histories.get(entry.job, (0, None))
        if history is None:
            history = JobHistory(entry.job)
        if told < count:
            rows = connection.execute(
                select(*_ROW[2:7])
                .where(ENTRIES.c.job == entry.job, ENTRIES.c.seq > told, ENTRIES.c.seq <= count)
                .order_by(ENTRIES.c.seq)
                .execution_options(yield_per=PAGE)
            )
            try:
                for kind, contract, once, body, time in rows:
                    history.tell(kind, contract, once, body, time, check_signatures=False)
            except InvalidEntry:
                raise LedgerError(f"ledger {self.name} is damaged: verify it.") from None
        self._histories[entry.job] = (count, history)
        try:
            history.tell(entry.kind, entry.contract, entry.once, entry.body, at)
        except InvalidEntry as problem:
            error = OverBudget if isinstance(problem, TooDear) else LedgerConflict
            raise error(
                f"an entry ({_short(entry)}) of job {entry.job} {problem} Nothing was written."
            ) from None

    def _recorded(
        self, connection: Connection, new: list[NewEntry]
    ) -> dict[tuple[str, str | None], Entry]:
        """What is recorded already under the once keys of these entries."""
        found: dict[tuple[str, str | None], Entry] = {}
        by_job: dict[str, list[str]] = {}
        for entry in new:
            if entry.once is not None:
                by_job.setdefault(entry.job, []).append(entry.once)
        for job, keys in by_job.items():
            for start in range(0, len(keys), _MOST_NAMES):
                some = ENTRIES.c.once.in_(keys[start : start + _MOST_NAMES])
                for row in connection.execute(select(*_ROW).where(ENTRIES.c.job == job, some)):
                    found[job, row.once] = _entry(row)
        return found


def _entry(row: Any) -> Entry:
    return Entry(*row)


def _short(entry: NewEntry) -> str:
    return entry.kind if entry.contract is None else f"{entry.kind}, contract {entry.contract[:12]}"
