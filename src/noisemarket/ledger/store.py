"""The ledger, in SQLite or PostgreSQL: appends each entry once, in one chain, beside other writers.

A ledger that is lost, or restored from an older backup, would have a job pay again. So the curator
notes the head in a file after every transaction, and a ledger without the noted head is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from noisemarket.errors import (
    BadInput,
    LedgerBroken,
    LedgerConflict,
    LedgerError,
    LedgerLost,
    MissingExtra,
    NoLedger,
    OverBudget,
)
from noisemarket.files import Closing, unusable, write_json
from noisemarket.ledger.entries import (
    FIRST,
    OFFERED,
    SETTLED,
    Entry,
    Head,
    NewEntry,
    described,
    seal_entry,
)
from noisemarket.ledger.history import InvalidEntry, JobHistory, OverBudgetEntry
from noisemarket.ledger.keys import KeyPair

LEDGER_FILE = "ledger.sqlite"
"""The ledger's name in a run folder."""

SCHEMA_VERSION = 1
PAGE = 2000
"""Entries that are read at a time."""

_WAIT = 60.0  # seconds that a writer waits for another
_MOST_NAMES = 500  # in one query
_LOCK = 0x6E6F6973  # one process at a time creates the tables of a PostgreSQL database

_TABLES = MetaData()
_WHOLE = BigInteger().with_variant(Integer, "sqlite")  # there, INTEGER holds 64 bits and is faster
SCHEMA = Table("noisemarket_schema", _TABLES, Column("version", Integer, primary_key=True))
HEAD = Table(
    "noisemarket_head",
    _TABLES,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True),
    Column("length", _WHOLE, nullable=False),
    Column("hash", Text, nullable=False),
)
ENTRIES = Table(
    "noisemarket_entries",
    _TABLES,
    Column("seq", _WHOLE, primary_key=True, autoincrement=False),
    Column("job", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("contract", Text),
    Column("once", Text),
    Column("body", Text, nullable=False),
    Column("recorded_at", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    UniqueConstraint("job", "once"),
    Index("noisemarket_entries_by_contract", "contract", "kind"),
    Index("noisemarket_entries_by_job", "job", "kind", "seq"),
)
_ROW = tuple(ENTRIES.c)

_GROWS = "the ledger only grows: its entries cannot be changed or deleted"
_GUARDS = {
    "sqlite": (
        *(
            f"""CREATE TRIGGER noisemarket_entries_no_{event} BEFORE {event} ON noisemarket_entries
            BEGIN SELECT RAISE(ABORT, '{_GROWS}'); END"""
            for event in ("update", "delete")
        ),
        # INSERT OR REPLACE deletes without the trigger above: let it find nothing to replace.
        f"""CREATE TRIGGER noisemarket_entries_no_replace BEFORE INSERT ON noisemarket_entries
            WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM noisemarket_entries)
                OR EXISTS
                    (SELECT 1 FROM noisemarket_entries WHERE job = NEW.job AND once = NEW.once)
            BEGIN SELECT RAISE(ABORT, '{_GROWS}'); END""",
        f"""CREATE TRIGGER noisemarket_head_no_delete BEFORE DELETE ON noisemarket_head
            BEGIN SELECT RAISE(ABORT, '{_GROWS}'); END""",
        f"""CREATE TRIGGER noisemarket_head_no_return BEFORE UPDATE ON noisemarket_head
            WHEN NEW.length <= OLD.length BEGIN SELECT RAISE(ABORT, '{_GROWS}'); END""",
    ),
    "postgresql": (
        f"""CREATE FUNCTION noisemarket_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION '{_GROWS}'; END $$""",
        """CREATE TRIGGER noisemarket_entries_no_change BEFORE UPDATE OR DELETE
            ON noisemarket_entries FOR EACH ROW EXECUTE FUNCTION noisemarket_only_grows()""",
        """CREATE TRIGGER noisemarket_entries_no_truncate BEFORE TRUNCATE ON noisemarket_entries
            FOR EACH STATEMENT EXECUTE FUNCTION noisemarket_only_grows()""",
        """CREATE TRIGGER noisemarket_head_no_delete BEFORE DELETE ON noisemarket_head
            FOR EACH ROW EXECUTE FUNCTION noisemarket_only_grows()""",
        """CREATE TRIGGER noisemarket_head_no_return BEFORE UPDATE ON noisemarket_head
            FOR EACH ROW WHEN (NEW.length <= OLD.length)
            EXECUTE FUNCTION noisemarket_only_grows()""",
    ),
}


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Ledger(Closing):
    """An open ledger. Use it in one thread; other processes may write to it meanwhile."""

    def __init__(
        self,
        where: str | Path,
        *,
        create: bool,
        clock: Callable[[], str] = now,
        curator: KeyPair | None = None,
        note: Path | None = None,
    ) -> None:
        self._clock, self._curator, self._note = clock, curator, note
        self._histories: dict[str, tuple[int, JobHistory]] = {}
        url = _url(where)
        if url.drivername == "sqlite":
            self.name = url.database or ""
            self._engine = _sqlite(Path(self.name), create)
        else:
            self.name, self._engine = _shown(url), _postgresql(url)
        try:
            if create:
                with self._writing() as connection:
                    self._create(connection)
            else:
                with self._reading() as connection:
                    if not self._exists(connection):
                        raise NoLedger("ledger", self.name, "is not a ledger.")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def head(self) -> Head:
        """Length and last hash. Note them elsewhere: ``verify`` compares the ledger with them."""
        with self._reading() as connection:
            row = connection.execute(select(HEAD.c.length, HEAD.c.hash)).one_or_none()
        return self._head(row)

    def entries(
        self,
        job: str | None = None,
        *,
        contracts: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        until: int | None = None,
    ) -> Iterator[Entry]:
        """Entries in order, a page in each transaction; ``after`` is exclusive."""
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

    def counts(
        self, field: Literal["job", "contract"], names: Sequence[str]
    ) -> Mapping[tuple[str, str], int]:
        """How many entries these jobs or contracts have, by name and kind."""
        name = ENTRIES.c[field]
        query = select(name, ENTRIES.c.kind, func.count()).where(name.in_(names))
        with self._reading() as connection:
            rows = connection.execute(query.group_by(name, ENTRIES.c.kind)).all()
        return {(str(one), str(kind)): int(number) for one, kind, number in rows}

    def contract_ids(self, prefix: str, most: int) -> list[str]:
        """The ids of offered contracts that begin so; at most so many of them."""
        name = ENTRIES.c.contract
        query = select(name).where(ENTRIES.c.kind == OFFERED, name.startswith(prefix))
        with self._reading() as connection:
            return [str(one) for one in connection.execute(query.distinct().limit(most)).scalars()]

    def repeated(self, kind: str, field: Literal["job", "contract"]) -> int | None:
        """The number of an entry of a kind that its job or contract has twice; None if none is."""
        query = select(func.max(ENTRIES.c.seq)).where(ENTRIES.c.kind == kind)
        query = query.group_by(ENTRIES.c[field]).having(func.count() > 1).limit(1)
        with self._reading() as connection:
            found: Any = connection.execute(query).scalar()
        return None if found is None else int(found)

    def _head(self, row: Sequence[Any] | None) -> Head:
        if row is None:
            raise LedgerBroken(None, f"{self.name} has lost its head: restore it from a backup.")
        return Head(*row)

    def _create(self, connection: Connection) -> None:
        """Create the tables if there are none, inside the caller's transaction."""
        dialect = connection.dialect.name
        if dialect == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        if self._exists(connection):
            return
        _TABLES.create_all(connection)
        for statement in _GUARDS[dialect]:
            connection.exec_driver_sql(statement)
        connection.execute(insert(HEAD).values(id=1, length=0, hash=FIRST))
        connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))

    def _exists(self, connection: Connection) -> bool:
        """Whether there is a ledger; one of another version is refused."""
        if not inspect(connection).has_table(SCHEMA.name):
            return False
        version = connection.scalar(select(func.max(SCHEMA.c.version)))
        if version != SCHEMA_VERSION:
            remedy = f"has schema {version} and this noisemarket reads schema {SCHEMA_VERSION}: "
            raise BadInput("ledger", self.name, remedy + "use the version that wrote it.")
        return True

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

    def check_holds(self, head: Head, noted_by: str) -> None:
        """Raise ``LedgerLost`` unless the ledger holds the entry of a head that was noted."""
        if head.count == 0:
            return
        found = next(self.entries(after=head.count - 1, until=head.count), None)
        if found is None or found.hash != head.hash:
            raise _lost(self.name, head, noted_by)

    def append(self, entries: Iterable[NewEntry]) -> tuple[Entry, ...]:
        """Record all of these entries, or none, and seal the chain with the curator's key.

        An entry whose once key is recorded already, with the same content, is not recorded again.
        Gives the recorded entries in the order given. ``LedgerConflict`` and ``OverBudget`` write
        nothing.
        """
        new = list(entries)
        if not new:
            return ()
        if self._curator is None:
            remedy = "open the ledger with the curator's key: what is recorded is sealed by it."
            raise BadInput("curator", "none", remedy)
        try:
            with self._writing() as connection:
                # for one writer at a time; on SQLite, BEGIN IMMEDIATE sees to that
                locked = select(HEAD.c.length, HEAD.c.hash).with_for_update()
                head = self._head(connection.execute(locked).one_or_none())
                recorded = self._append(connection, head, new, self._clock())
        except BaseException:
            self._histories.clear()  # they may include what was then not written
            raise
        if self._note is not None:
            write_json(self._note, {"ledger": self.name, "head": str(self.head())})
        return recorded

    def _append(
        self, connection: Connection, before: Head, new: list[NewEntry], at: str
    ) -> tuple[Entry, ...]:
        known = _recorded(connection, new)
        recorded: list[Entry] = []
        added: list[Entry] = []
        head = before
        for entry in new:
            name = (entry.job, entry.once)
            if entry.once is not None and name in known:
                if not known[name].says(entry):
                    raise LedgerConflict(
                        f"ledger {self.name} has something else recorded as {described(entry)} of "
                        f"job {entry.job}; nothing was written."
                    )
                recorded.append(known[name])
                continue
            self._check(connection, before, entry, at)
            done = Entry.after(head, entry, at)
            head = Head(done.seq, done.hash)
            recorded.append(done)
            added.append(done)
            known[name] = done
        for job in dict.fromkeys(entry.job for entry in added):
            seal = self._seal(head, job, at)
            head = Head(seal.seq, seal.hash)
            added.append(seal)
        if added:
            rows = [{name: getattr(entry, name) for name in Entry.__slots__} for entry in added]
            connection.execute(insert(ENTRIES), rows)
            connection.execute(update(HEAD).values(length=head.count, hash=head.hash))
            for job in {entry.job for entry in new} & self._histories.keys():
                _, history = self._histories.pop(job)
                if history.stage != SETTLED:
                    self._histories[job] = (head.count, history)
        return tuple(recorded)

    def _seal(self, head: Head, job: str, at: str) -> Entry:
        """The curator's seal on a job's new entries, which its history has."""
        assert self._curator is not None
        seal = seal_entry(self._curator, head, job, at)
        _, history = self._histories[job]
        if history.curator_key != self._curator.public_hex:
            raise LedgerConflict(
                f"job {job} is of the curator {history.curator_key[:16]}, and the ledger was "
                "opened with another key. Nothing was written."
            )
        history.add(seal, at, check_signatures=False)
        return seal

    def _check(self, connection: Connection, head: Head, entry: NewEntry, at: str) -> None:
        """Check an entry against its job's history, which is first brought up to date."""
        read, history = self._histories.get(entry.job, (0, JobHistory(entry.job)))
        if read < head.count:
            query = select(*_ROW).where(ENTRIES.c.job == entry.job, ENTRIES.c.seq > read)
            query = query.where(ENTRIES.c.seq <= head.count).order_by(ENTRIES.c.seq)
            try:
                for row in connection.execute(query.execution_options(yield_per=PAGE)):
                    one = Entry(*row)
                    history.add(one, one.recorded_at, check_signatures=False)
            except InvalidEntry:
                raise LedgerError(f"ledger {self.name} is damaged: verify it.") from None
        self._histories[entry.job] = (head.count, history)
        try:
            history.add(entry, at)
        except InvalidEntry as problem:
            error = OverBudget if isinstance(problem, OverBudgetEntry) else LedgerConflict
            raise error(
                f"an entry ({described(entry)}) of job {entry.job} {problem} Nothing was written."
            ) from None


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
            remedy = "give a folder, a file or a URL that begins with postgresql://."
            raise BadInput("ledger", _shown(url), remedy)
        where = url.database
    path = Path(where)
    return URL.create("sqlite", database=str(path / LEDGER_FILE if path.is_dir() else path))


def _shown(url: URL) -> str:
    return url.difference_update_query(["password", "sslpassword"]).render_as_string()


def _reason(problem: DBAPIError) -> str:
    lines = str(problem.orig).strip().splitlines() or [type(problem.orig).__name__]
    return lines[0].rstrip(".")


def open_ledger(
    where: str | Path,
    *,
    create: bool = True,
    clock: Callable[[], str] = now,
    curator: KeyPair | None = None,
    note: Path | None = None,
) -> Ledger:
    """Open the ledger in a run folder, an SQLite file, or at a URL such as ``postgresql://...``.

    Without ``create`` opening changes nothing. ``curator`` is the key that seals what is recorded:
    without it the ledger can only be read. ``note`` is a file, best outside of the ledger's own
    storage, in which the head is noted; a ledger that lacks that head raises ``LedgerLost``.

    Example:
        ::

            with open_ledger("runs/first", create=False) as ledger:
                print(verify(ledger).head)
    """
    if note is not None and (head := noted_head(note)) is not None:
        noted_by = f"the curator ({note})"
        try:
            # before a new ledger is made in its place
            with Ledger(where, create=False) as ledger:
                ledger.check_holds(head, noted_by)
        except NoLedger as missing:
            raise _lost(str(missing.value), head, noted_by) from None
    return Ledger(where, create=create, clock=clock, curator=curator, note=note)


@contextmanager
def reading(where: str) -> Iterator[Ledger]:
    """An existing ledger in a run folder, a file or at a URL; damage becomes one sentence."""
    if "://" not in where:
        folder = Path(where)
        if url := _elsewhere(folder / "market.json"):
            where = url
        elif folder.is_dir() and not (folder / LEDGER_FILE).is_file():
            raise BadInput("ledger", where, f"this folder has no {LEDGER_FILE}.")
        elif not folder.is_dir() and not folder.is_file():
            remedy = "does not exist: name a run folder, a ledger file or a URL."
            raise BadInput("ledger", where, remedy)
    with open_ledger(where, create=False) as ledger:
        try:
            yield ledger
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise LedgerError(f"ledger {ledger.name} is damaged: verify it.") from None


def _recorded(connection: Connection, new: list[NewEntry]) -> dict[tuple[str, str | None], Entry]:
    """What is recorded already under the once keys of these entries."""
    by_job: dict[str, list[str]] = {}
    for entry in new:
        if entry.once is not None:
            by_job.setdefault(entry.job, []).append(entry.once)
    found = {}
    for job, keys in by_job.items():
        for start in range(0, len(keys), _MOST_NAMES):
            some = ENTRIES.c.once.in_(keys[start : start + _MOST_NAMES])
            for row in connection.execute(select(*_ROW).where(ENTRIES.c.job == job, some)):
                found[job, row.once] = Entry(*row)
    return found


def _elsewhere(manifest: Path) -> str:
    """The URL of a run's ledger, from its manifest; empty if it is in the run folder."""
    if not manifest.is_file():
        return ""
    try:
        return str(json.loads(manifest.read_text(encoding="utf-8"))["ledger"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise BadInput("ledger", str(manifest), "cannot be read: name the ledger itself.") from None


def noted_head(note: Path) -> Head | None:
    """The head that a file has; None if there is no file yet."""
    try:
        return Head.parse(json.loads(note.read_text(encoding="utf-8"))["head"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        remedy = 'cannot be read: restore it, or write {"head": "COUNT:HASH"} by hand.'
        raise BadInput("noted head", str(note), remedy) from None


def _lost(ledger: str, head: Head, noted_by: str) -> LedgerLost:
    return LedgerLost(
        f"ledger {ledger} lacks entry {head.count}, which {noted_by} noted: it was lost or "
        "restored from an older backup, and resuming would pay again. Restore a backup that holds "
        "this entry, and run again."
    )
