"""What somebody with the database's own tools can do to a ledger."""

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg

from noisemarket.ledger.contract import canonical
from noisemarket.ledger.entries import FIRST, SEALED, Head, entry_hash, seal_entry
from noisemarket.ledger.keys import KeyPair

COLUMNS = ("seq", "job", "kind", "contract", "once", "body", "recorded_at", "previous", "hash")
Rows = list[dict[str, Any]]


def execute(place: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as they are, with all triggers in force; gives the last one's rows."""
    if "://" in place:
        with psycopg.connect(place) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    file = sqlite3.connect(place)
    try:
        with file:
            for statement in statements:
                rows = file.execute(statement).fetchall()
        return rows
    finally:
        file.close()


def drop_guards(place: str) -> None:
    """Take all triggers away."""
    if "://" in place:
        for table in ("noisemarket_entries", "noisemarket_head"):
            execute(place, f"ALTER TABLE {table} DISABLE TRIGGER USER")
    else:
        for (name,) in execute(place, "SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            execute(place, f"DROP TRIGGER {name}")


def tamper(place: str, *statements: str) -> None:
    """Run statements with no trigger in the way."""
    drop_guards(place)
    execute(place, *statements)


def read(place: str) -> Rows:
    """All entries, as they are."""
    select = f"SELECT {', '.join(COLUMNS)} FROM noisemarket_entries ORDER BY seq"
    return [dict(zip(COLUMNS, row, strict=True)) for row in execute(place, select)]


def write(place: str, rows: Rows) -> None:
    """Put these entries in the place of all others, and let the head fit."""
    values = ["(" + ", ".join(quoted(row[name]) for name in COLUMNS) + ")" for row in rows]
    tamper(
        place,
        "DELETE FROM noisemarket_entries",
        f"INSERT INTO noisemarket_entries ({', '.join(COLUMNS)}) VALUES {', '.join(values)}",
        f"UPDATE noisemarket_head SET length = {len(rows)}, hash = '{rows[-1]['hash']}'",
    )


def rewrite(place: str, edit: Callable[[Rows], Any], curator: KeyPair | None = None) -> None:
    """Change the entries at will, then make all hashes and the head fit again.

    With a curator's key the seals are made again, too: that is what a curator could do itself.
    """
    rows = read(place)
    edit(rows)
    last = FIRST
    for number, row in enumerate(rows, start=1):
        row |= {"seq": number, "previous": last}
        if curator is not None and row["kind"] == SEALED:
            head = Head(number - 1, last)
            row["body"] = seal_entry(curator, head, row["job"], row["recorded_at"]).body
        row["hash"] = last = entry_hash(*(row[name] for name in COLUMNS[:-1]))
    write(place, rows)


def cut_to_a_seal(rows: Rows) -> None:
    """Take the last transaction off."""
    rows.pop()
    while rows[-1]["kind"] != SEALED:
        rows.pop()


def first(rows: Rows, kind: str) -> dict[str, Any]:
    """The first entry of this kind."""
    return next(row for row in rows if row["kind"] == kind)


def change_body(row: dict[str, Any], **changes: Any) -> None:
    """Let an entry say something else."""
    row["body"] = canonical({**json.loads(row["body"]), **changes})


def quoted(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(value).replace("'", "''")
    return str(value) if isinstance(value, int) else f"'{text}'"
