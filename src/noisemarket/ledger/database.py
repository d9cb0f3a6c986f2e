"""Reaching the database: SQLite in a file, or PostgreSQL by URL. Its errors become sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.files import unusable
from noisemarket.ledger.ledger_errors import LedgerError, NoLedger

LEDGER_FILE = "ledger.sqlite"
"""The ledger's name in a run folder."""

_WAIT = 60.0  # seconds that a writer waits for another


class Database:
    """One database, with transactions to read and to write."""

    def __init__(self, where: str | Path, *, create: bool) -> None:
        url = _url(where)
        if url.drivername == "sqlite":
            self.name = url.database or ""
            self._engine = self._sqlite(Path(self.name), create)
        else:
            self.name, self._engine = _shown(url), _postgresql(url)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A short transaction that changes nothing."""
        with self._sentences("read"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
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

    def _sqlite(self, path: Path, create: bool) -> Engine:
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
