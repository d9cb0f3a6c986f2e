"""A ledger in a database: SQLite in a file, or PostgreSQL by URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select, update

from noisemarket.ledger.backend import LedgerBackend, Transaction
from noisemarket.ledger.database import Database
from noisemarket.ledger.entries import OFFERED, Entry, Head
from noisemarket.ledger.ledger_errors import LedgerError, NoLedger
from noisemarket.ledger.migrations import ENTRIES, HEAD, migrate, refuse_newer, version

PAGE = 2000
"""Entries that are read at a time."""

_MOST_NAMES = 500  # in one query
_ROW = tuple(ENTRIES.c)


class SqlBackend(LedgerBackend):
    """Keeps a ledger in SQLite or PostgreSQL; ``where`` is a folder, a file or a URL."""

    def __init__(self, where: str | Path, *, create: bool) -> None:
        self._database = Database(where, create=create)
        try:
            if create:
                with self._database.writing() as connection:
                    migrate(connection, self.name)
            else:
                with self._database.reading() as connection:
                    reached = version(connection)
                if not reached:
                    raise NoLedger("ledger", self.name, "is not a ledger.")
                refuse_newer(reached, self.name)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self._database.name

    def close(self) -> None:
        self._database.close()

    def head(self) -> Head | None:
        with self._database.reading() as connection:
            row = connection.execute(select(HEAD.c.length, HEAD.c.hash)).one_or_none()
        return None if row is None else Head(*row)

    def entries(
        self,
        *,
        job: str | None = None,
        contracts: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        until: int | None = None,
    ) -> Iterator[Entry]:
        """Entries in order, a page in each transaction."""
        query = select(*_ROW).order_by(ENTRIES.c.seq).limit(PAGE)
        if job is not None:
            query = query.where(ENTRIES.c.job == job)
        if contracts is not None:
            query = query.where(ENTRIES.c.contract.in_(contracts))
        if kinds is not None:
            query = query.where(ENTRIES.c.kind.in_(kinds))
        if until is not None:
            query = query.where(ENTRIES.c.seq <= until)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(query.where(ENTRIES.c.seq > after)).all()
            yield from (Entry(*row) for row in rows)
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that holds the head against all other writers."""
        with self._database.writing() as connection:
            row = connection.execute(
                select(HEAD.c.length, HEAD.c.hash).with_for_update()  # SQLite: BEGIN IMMEDIATE does
            ).one_or_none()
            if row is None:
                raise LedgerError(f"ledger {self.name} has lost its head: verify it.")
            yield _SqlTransaction(connection, Head(*row))

    def counts(
        self, field: Literal["job", "contract"], names: Sequence[str]
    ) -> Mapping[tuple[str, str], int]:
        name = ENTRIES.c[field]
        query = select(name, ENTRIES.c.kind, func.count()).where(name.in_(names))
        with self._database.reading() as connection:
            rows = connection.execute(query.group_by(name, ENTRIES.c.kind)).all()
        return {(str(one), str(kind)): int(number) for one, kind, number in rows}

    def contract_ids(self, prefix: str, most: int) -> list[str]:
        name = ENTRIES.c.contract
        query = select(name).where(ENTRIES.c.kind == OFFERED, name.startswith(prefix))
        with self._database.reading() as connection:
            return [str(one) for one in connection.execute(query.distinct().limit(most)).scalars()]

    def repeated(self, kind: str, field: Literal["job", "contract"]) -> int | None:
        query = select(func.max(ENTRIES.c.seq)).where(ENTRIES.c.kind == kind)
        query = query.group_by(ENTRIES.c[field]).having(func.count() > 1).limit(1)
        with self._database.reading() as connection:
            found: Any = connection.execute(query).scalar()
        return None if found is None else int(found)


class _SqlTransaction(Transaction):
    def __init__(self, connection: Connection, head: Head) -> None:
        self._connection, self.head = connection, head

    def recorded(self, job: str, keys: Sequence[str]) -> Iterator[Entry]:
        for start in range(0, len(keys), _MOST_NAMES):
            some = ENTRIES.c.once.in_(keys[start : start + _MOST_NAMES])
            for row in self._connection.execute(select(*_ROW).where(ENTRIES.c.job == job, some)):
                yield Entry(*row)

    def entries(self, job: str, after: int) -> Iterator[Entry]:
        query = select(*_ROW).where(ENTRIES.c.job == job, ENTRIES.c.seq > after)
        query = query.where(ENTRIES.c.seq <= self.head.count).order_by(ENTRIES.c.seq)
        for row in self._connection.execute(query.execution_options(yield_per=PAGE)):
            yield Entry(*row)

    def add(self, entries: Sequence[Entry]) -> None:
        rows = [{name: getattr(entry, name) for name in Entry.__slots__} for entry in entries]
        self._connection.execute(insert(ENTRIES), rows)
        last = entries[-1]
        self._connection.execute(update(HEAD).values(length=last.seq, hash=last.hash))
