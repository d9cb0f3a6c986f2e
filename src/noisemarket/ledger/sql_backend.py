"""A ledger in a database: SQLite in a file, or PostgreSQL by URL. Its errors become sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Engine, create_engine, event, func, insert, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.files import unusable
from noisemarket.ledger.backend import LedgerBackend, Transaction
from noisemarket.ledger.entries import OFFERED, Entry, Head
from noisemarket.ledger.ledger_errors import LedgerError, NoLedger
from noisemarket.ledger.migrations import ENTRIES, HEAD, migrate, version

LEDGER_FILE = "ledger.sqlite"
"""The ledger's name in a run folder."""

PAGE = 2000
"""Entries that are read at a time."""

_WAIT = 60.0  # seconds that a writer waits for another
_MOST_NAMES = 500  # in one query
_ROW = tuple(ENTRIES.c)


class SqlBackend(LedgerBackend):
    """Keeps a ledger in SQLite or PostgreSQL; ``where`` is a folder, a file or a URL."""

    def __init__(self, where: str | Path, *, create: bool) -> None:
        url = _url(where)
        if url.drivername == "sqlite":
            self._name = url.database or ""
            self._engine = _sqlite(Path(self._name), create)
        else:
            self._name, self._engine = _shown(url), _postgresql(url)
        try:
            if create:
                with self._writing() as connection:
                    migrate(connection, self.name)
            else:
                with self._reading() as connection:
                    if not version(connection, self.name):
                        raise NoLedger("ledger", self.name, "is not a ledger.")
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self._name

    def close(self) -> None:
        self._engine.dispose()

    def head(self) -> Head | None:
        with self._reading() as connection:
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
            with self._reading() as connection:
                rows = connection.execute(query.where(ENTRIES.c.seq > after)).all()
            yield from (Entry(*row) for row in rows)
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that holds the head against all other writers."""
        with self._writing() as connection:
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
        with self._reading() as connection:
            rows = connection.execute(query.group_by(name, ENTRIES.c.kind)).all()
        return {(str(one), str(kind)): int(number) for one, kind, number in rows}

    def contract_ids(self, prefix: str, most: int) -> list[str]:
        name = ENTRIES.c.contract
        query = select(name).where(ENTRIES.c.kind == OFFERED, name.startswith(prefix))
        with self._reading() as connection:
            return [str(one) for one in connection.execute(query.distinct().limit(most)).scalars()]

    def repeated(self, kind: str, field: Literal["job", "contract"]) -> int | None:
        query = select(func.max(ENTRIES.c.seq)).where(ENTRIES.c.kind == kind)
        query = query.group_by(ENTRIES.c[field]).having(func.count() > 1).limit(1)
        with self._reading() as connection:
            found: Any = connection.execute(query).scalar()
        return None if found is None else int(found)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A short transaction that changes nothing."""
        with self._sentences("read"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that may write. SQLite has one of them at a time."""
        with self._sentences("written"), self._engine.connect() as connection:
            connection.execution_options(noisemarket_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def _sentences(self, verb: str) -> Iterator[None]:
        try:
            yield
        except DBAPIError as problem:
            reason = _reason(problem)
            if "not a database" in reason:
                raise NoLedger("ledger", self.name, "is not a ledger.") from None
            raise LedgerError(f"ledger {self.name} cannot be {verb}: {reason}.") from None
        except SQLAlchemyError as problem:
            raise LedgerError(f"ledger {self.name} cannot be {verb}: {problem}.") from None


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


def _sqlite(path: Path, create: bool) -> Engine:
    if path.is_dir():
        raise BadInput("ledger", str(path), "is a folder: name a file.")
    if not path.exists() and not create:
        raise NoLedger("ledger", str(path), "does not exist.")
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise unusable("ledger", path, "written", problem) from None
    # A reader may have to roll back what a killed writer left, so it opens to write, if it can.
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    mode = "rwc" if create else "rw" if writable else "ro"
    engine = create_engine(
        URL.create(
            "sqlite+pysqlite",
            database=path.absolute().as_uri(),
            query={"mode": mode, "uri": "true"},
        ),
        connect_args={"timeout": _WAIT, "isolation_level": None},
        poolclass=NullPool,
    )

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = EXTRA")  # also the folder, after the journal goes
        cursor.execute("PRAGMA trusted_schema = OFF")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("noisemarket_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=True)
    except ImportError:
        raise MissingExtra("a ledger on PostgreSQL", "postgres") from None

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _record: object) -> None:
        connection.execute("SET synchronous_commit TO on")
        connection.commit()

    return engine


def _url(where: str | Path) -> URL:
    """The URL of a folder with a ledger in it, of a file, or as given."""
    if isinstance(where, str) and "://" in where:
        try:
            url = make_url(where)
        except (ArgumentError, ValueError):
            raise BadInput("ledger", "the URL", "cannot be read.") from None
        kind = url.drivername.partition("+")[0]
        if kind in ("postgresql", "postgres"):
            return url.set(drivername="postgresql+psycopg")
        if kind != "sqlite" or not url.database or url.query:
            raise BadInput("ledger", _shown(url), "give a folder or a file.")
        where = url.database
    path = Path(where)
    return URL.create("sqlite", database=str(path / LEDGER_FILE if path.is_dir() else path))


def _shown(url: URL) -> str:
    return url.difference_update_query(["password", "sslpassword"]).render_as_string()


def _reason(problem: DBAPIError) -> str:
    lines = str(problem.orig).strip().splitlines() or [type(problem.orig).__name__]
    return lines[0].rstrip(".")
