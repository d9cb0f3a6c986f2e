"""The ledger: appends each entry once, in one chain, also while other processes write.

A ledger that is lost, or restored from an older backup, would have a job pay again. So the curator
notes the head in a file after every transaction, and a ledger without the noted head is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from noisemarket.errors import (
    BadInput,
    LedgerConflict,
    LedgerError,
    LedgerLost,
    NoLedger,
    OverBudget,
)
from noisemarket.files import write_json
from noisemarket.ledger.database import LEDGER_FILE, Database, Transaction
from noisemarket.ledger.entries import SETTLED, Entry, Head, NewEntry, described, seal_entry
from noisemarket.ledger.history import InvalidEntry, JobHistory, OverBudgetEntry
from noisemarket.ledger.keys import KeyPair


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


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


class Ledger(Database):
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
        super().__init__(where, create=create)
        self._clock, self._curator, self._note = clock, curator, note
        self._histories: dict[str, tuple[int, JobHistory]] = {}

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
            with self.writing() as transaction:
                recorded = self._append(transaction, new, self._clock())
        except BaseException:
            self._histories.clear()  # they may include what was then not written
            raise
        if self._note is not None:
            write_json(self._note, {"ledger": self.name, "head": str(self.head())})
        return recorded

    def _append(self, transaction: Transaction, new: list[NewEntry], at: str) -> tuple[Entry, ...]:
        known = _recorded(transaction, new)
        recorded: list[Entry] = []
        added: list[Entry] = []
        head = transaction.head
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
            self._check(transaction, entry, at)
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
            transaction.add(added)
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

    def _check(self, transaction: Transaction, entry: NewEntry, at: str) -> None:
        """Check an entry against its job's history, which is first brought up to date."""
        count = transaction.head.count
        read, history = self._histories.get(entry.job, (0, JobHistory(entry.job)))
        if read < count:
            try:
                for one in transaction.entries(entry.job, after=read):
                    history.add(one, one.recorded_at, check_signatures=False)
            except InvalidEntry:
                raise LedgerError(f"ledger {self.name} is damaged: verify it.") from None
        self._histories[entry.job] = (count, history)
        try:
            history.add(entry, at)
        except InvalidEntry as problem:
            error = OverBudget if isinstance(problem, OverBudgetEntry) else LedgerConflict
            raise error(
                f"an entry ({described(entry)}) of job {entry.job} {problem} Nothing was written."
            ) from None


def _recorded(transaction: Transaction, new: list[NewEntry]) -> dict[tuple[str, str | None], Entry]:
    """What is recorded already under the once keys of these entries."""
    by_job: dict[str, list[str]] = {}
    for entry in new:
        if entry.once is not None:
            by_job.setdefault(entry.job, []).append(entry.once)
    return {
        (job, entry.once): entry
        for job, keys in by_job.items()
        for entry in transaction.recorded(job, keys)
    }


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
