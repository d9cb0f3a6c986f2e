"""Where the ledger of a run is, as far as a page may know: in its folder, or where the user said.

A run folder may come from anywhere, and names its ledger itself. So nothing but the file in the
folder is opened, and no server is connected to but those that the dashboard was started with.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from noisemarket.ledger.database import LEDGER_FILE
from noisemarket.ledger.store import Ledger, reading
from noisemarket.market.market_folder import JOB
from noisemarket.show.dashboard.run_store import RunStore

_BESIDE = ("-journal", "-wal", "-shm")
"""Endings of the files that SQLite reads with a database."""


@dataclass(frozen=True)
class RunLedger:
    """A ledger that may be read: a file or a URL, and the job in it that is the run's.

    ``stamp`` changes with the file; None where only the ledger itself knows what is new.
    """

    location: str
    job: str
    stamp: tuple[int, ...] | None

    def reading(self) -> AbstractContextManager[Ledger]:
        """The ledger, open."""
        return reading(self.location)


def ledger_of(store: RunStore, run: str) -> RunLedger | None:
    """The ledger of a run; None if it has none that may be read.

    Raises:
        UnknownRun: there is no such run.
    """
    manifest = store.table(run, JOB)
    if not manifest:
        return None
    where, job = str(manifest.get("ledger") or ""), str(manifest.get("job") or "")
    if where:
        own = next((url for url in store.ledgers if _database(url) == _database(where)), None)
        return None if own is None else RunLedger(own, job, None)
    path = store.file(run, LEDGER_FILE)
    if path is None or any(path.with_name(path.name + end).is_symlink() for end in _BESIDE):
        return None
    return RunLedger(str(path), job, store.stamp(run, LEDGER_FILE))


def is_elsewhere(store: RunStore, run: str) -> bool:
    """Whether a run says that its ledger is not in its folder."""
    return bool(store.table(run, JOB).get("ledger"))


def _database(url: str) -> object:
    """What a URL leads to, whoever asks; what is not the URL of a server is like nothing else."""
    with suppress(ValueError):
        parts = urlsplit(url)
        kind = parts.scheme.partition("+")[0].replace("postgresql", "postgres")
        if parts.hostname or parts.path.strip("/"):
            return kind, parts.hostname, parts.port, parts.path
    return object()
