"""The tables, created and changed by an ordered list of steps; a ledger records which it has."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    column,
    func,
    insert,
    inspect,
    select,
    table,
)

from noisemarket.errors import BadInput
from noisemarket.ledger.entries import FIRST, Entry

SCHEMA = Table("noisemarket_schema", MetaData(), Column("version", Integer, primary_key=True))
HEAD = table("noisemarket_head", column("length", BigInteger), column("hash", Text))
ENTRIES = table(
    "noisemarket_entries",
    column("seq", BigInteger),
    *(column(name, Text) for name in Entry.__slots__[1:]),
)


@dataclass(frozen=True)
class Migration:
    """One step: the statements that take either database to this version."""

    version: int
    sqlite: tuple[str, ...]
    postgresql: tuple[str, ...]


_TABLES = (
    """CREATE TABLE noisemarket_head (
        id INTEGER PRIMARY KEY CHECK (id = 1), length {whole} NOT NULL, hash TEXT NOT NULL)""",
    """CREATE TABLE noisemarket_entries (
        seq {whole} PRIMARY KEY, job TEXT NOT NULL, kind TEXT NOT NULL, contract TEXT, once TEXT,
        body TEXT NOT NULL, recorded_at TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
        UNIQUE (job, once))""",
    f"INSERT INTO noisemarket_head (id, length, hash) VALUES (1, 0, '{FIRST}')",
)

_SAID = "the ledger only grows: its entries cannot be changed or deleted"

_SQLITE_GUARDS = (
    *(
        f"""CREATE TRIGGER noisemarket_entries_no_{event} BEFORE {event} ON noisemarket_entries
        BEGIN SELECT RAISE(ABORT, '{_SAID}'); END"""
        for event in ("update", "delete")
    ),
    # INSERT OR REPLACE deletes without asking the trigger above: let it find nothing to replace.
    f"""CREATE TRIGGER noisemarket_entries_no_replace BEFORE INSERT ON noisemarket_entries
        WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM noisemarket_entries)
            OR EXISTS (SELECT 1 FROM noisemarket_entries WHERE job = NEW.job AND once = NEW.once)
        BEGIN SELECT RAISE(ABORT, '{_SAID}'); END""",
    f"""CREATE TRIGGER noisemarket_head_no_delete BEFORE DELETE ON noisemarket_head
        BEGIN SELECT RAISE(ABORT, '{_SAID}'); END""",
    f"""CREATE TRIGGER noisemarket_head_no_return BEFORE UPDATE ON noisemarket_head
        WHEN NEW.length <= OLD.length BEGIN SELECT RAISE(ABORT, '{_SAID}'); END""",
)

_POSTGRESQL_GUARDS = (
    f"""CREATE FUNCTION noisemarket_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION '{_SAID}'; END $$""",
    """CREATE TRIGGER noisemarket_entries_no_change BEFORE UPDATE OR DELETE ON noisemarket_entries
        FOR EACH ROW EXECUTE FUNCTION noisemarket_only_grows()""",
    """CREATE TRIGGER noisemarket_entries_no_truncate BEFORE TRUNCATE ON noisemarket_entries
        FOR EACH STATEMENT EXECUTE FUNCTION noisemarket_only_grows()""",
    """CREATE TRIGGER noisemarket_head_no_delete BEFORE DELETE ON noisemarket_head
        FOR EACH ROW EXECUTE FUNCTION noisemarket_only_grows()""",
    """CREATE TRIGGER noisemarket_head_no_return BEFORE UPDATE ON noisemarket_head
        FOR EACH ROW WHEN (NEW.length <= OLD.length)
        EXECUTE FUNCTION noisemarket_only_grows()""",
)

_INDEXES = (
    "CREATE INDEX noisemarket_entries_by_contract ON noisemarket_entries (contract, kind)",
    "CREATE INDEX noisemarket_entries_by_job ON noisemarket_entries (job, kind, seq)",
)

MIGRATIONS = (
    Migration(
        1,
        (*(sql.replace("{whole}", "INTEGER") for sql in _TABLES), *_SQLITE_GUARDS, *_INDEXES),
        (*(sql.replace("{whole}", "BIGINT") for sql in _TABLES), *_POSTGRESQL_GUARDS, *_INDEXES),
    ),
)
"""All steps, in order. A step that has been released is never edited: add another one."""

_LOCK = 0x6E6F6973  # one process at a time takes steps on a PostgreSQL database


def version(connection: Connection, name: str) -> int:
    """The step that this database has reached; 0 if it holds no ledger.

    Raises:
        BadInput: the ledger was written by a newer noisemarket than this.
    """
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    reached = connection.scalar(select(func.max(SCHEMA.c.version))) or 0
    if reached > (known := MIGRATIONS[-1].version):
        remedy = f"has schema {reached} and this noisemarket knows {known}: use a newer one."
        raise BadInput("ledger", name, remedy)
    return reached


def migrate(connection: Connection, name: str) -> None:
    """Take the steps that are left, inside the caller's transaction."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    if not (reached := version(connection, name)):
        SCHEMA.create(connection)
    for migration in MIGRATIONS:
        if migration.version > reached:
            for statement in getattr(migration, connection.dialect.name):
                connection.exec_driver_sql(statement)
            connection.execute(insert(SCHEMA).values(version=migration.version))
