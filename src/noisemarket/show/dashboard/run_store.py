"""The run folders below one folder: which there are, and how each stands.

Nothing outside of that folder is ever read: a path that a name, or a symlink, leads elsewhere is
treated as one that does not exist.
"""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.rounds import read_result
from noisemarket.files import last_line, private_folder, unusable
from noisemarket.ledger.money import UNITS
from noisemarket.ledger.store import LEDGER_FILE, Ledger, reading
from noisemarket.market.run_folder import JOB, STATUS, still_runs
from noisemarket.market.summary import deployed

RUNNING, COMPLETE, INCOMPLETE = "running", "complete", "incomplete"
SUMMARY, SCENARIO, COMPARISON = "summary.json", "scenario.toml", "comparison.json"
CONTRACTS = "contracts.csv"
SEASON, CLAIMS, METRICS = "season.json", "claims.json", "curator/metrics.jsonl"
JOB_OF = " job "
LOGS = ".dashboard"
"""Where the output of runs goes that were started from the page."""

RESUMABLE = ("run", "season")
_NO_MECHANISM = ("compare", "reproduction", "audit", "calibrate")
"""Commands that try several mechanisms, or none."""

_FORBIDDEN = set('/\\:\0\n\r"<>|?*')


class UnknownRun(NoisemarketError):
    """There is no such run, or it has no such part."""


Answer = TypeVar("Answer")


class _Slot(Generic[Answer]):
    """One answer, and the state of the files that it was made of."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: tuple[Hashable, Answer] | None = None


class AnswerCache(Generic[Answer]):
    """The answers that were asked for last, each computed once and by one thread at a time."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._slots: dict[Hashable, _Slot[Answer]] = {}

    def get(self, key: Hashable, stamp: Hashable, make: Callable[[], Answer]) -> Answer:
        """The answer of a key; computed anew if ``stamp``, the state of its files, is another."""
        with self._lock:
            slot = self._slots.pop(key, None) or _Slot()
            self._slots[key] = slot
            if len(self._slots) > self._size:
                del self._slots[next(iter(self._slots))]
        with slot.lock:
            if slot.made is None or slot.made[0] != stamp:
                slot.made = stamp, make()
            return slot.made[1]


class RunStore:
    """All runs of a folder."""

    def __init__(self, root: Path, ledgers: Sequence[str] = (), data: Sequence[str] = ()) -> None:
        if (root / STATUS).is_file():
            remedy = "is a run folder: name the folder that holds it."
            raise BadInput("RUNS_FOLDER", str(root), remedy)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise unusable("RUNS_FOLDER", root, "used", problem) from None
        self.root = root.resolve()
        self.ledgers = tuple(ledgers)
        self.data: dict[str, str] = {}
        for folder in (Path(one).resolve() for one in data):
            if not folder.name or folder.name in self.data:
                remedy = "has the name of another folder of data, or none: rename it."
                raise BadInput("data", str(folder), remedy)
            self.data[folder.name] = str(folder)
        self.answers: AnswerCache[Any] = AnswerCache(64)
        self._facts: AnswerCache[dict[str, Any]] = AnswerCache(10_000)

    def private(self) -> Path:
        """A folder for this user alone beside the runs, which is not a run."""
        return private_folder(self.root / LOGS)

    def names(self) -> list[str]:
        """The names of all run folders."""
        return sorted(one.name for one in self.root.iterdir() if self._is_run(one.name))

    def path(self, run: str) -> Path:
        """The folder of a run, or of a job of a season, which is called ``SEASON job 01``."""
        if not self._is_run(run):
            raise UnknownRun("There is no such run in this folder.")
        return self.folder(run)

    def folder(self, run: str) -> Path:
        """Where a run of that name is, if it is."""
        season, job, number = run.rpartition(JOB_OF)
        inside = job and number.isdecimal() and not (self.root / run).exists()
        return self.root / season / "jobs" / number if inside else self.root / run

    def is_job(self, run: str) -> bool:
        """Whether a run is a job of a season, which only the season can go on with."""
        return self.path(run).parent != self.root

    def new_path(self, run: str) -> Path:
        """The folder that a new run may be given."""
        if not is_name(run):
            remedy = "use up to 100 letters, digits, dots, dashes and spaces, no dot first."
            raise BadInput("name", run, remedy)
        path = self.root / run
        if path.exists() or path.is_symlink():
            raise BadInput("name", run, "exists already: choose another.")
        return path

    def file(self, run: str, name: str) -> Path | None:
        """A file of a run; None if it is not there, or is really somewhere else."""
        path = self.path(run) / name
        return path if path.is_file() and path.resolve() == path else None

    def document(self, run: str, name: str) -> Any:
        """A JSON or TOML file of a run; None if there is none that can be read."""
        path = self.file(run, name)
        read = tomllib.loads if name.endswith(".toml") else json.loads
        try:
            return read(path.read_text(encoding="utf-8")) if path else None
        except (OSError, ValueError, RecursionError):
            return None

    def table(self, run: str, name: str) -> dict[str, Any]:
        """The same of a file that holds a table; empty if there is none."""
        return _table(self.document(run, name))

    def stamp(self, run: str, *names: str) -> tuple[int, ...]:
        """What changes when one of these files of a run does, or comes, or goes."""
        stamp: list[int] = []
        for name in names:
            try:
                path = self.file(run, name)
                found = path.stat() if path else None
            except OSError:  # removed just now
                found = None
            stamp += (found.st_mtime_ns, found.st_size, found.st_ino) if found else (0, 0, 0)
        return tuple(stamp)

    def status(self, run: str) -> dict[str, Any]:
        """How a run stands; one that says that it runs, but does not, is incomplete."""
        status = self.table(run, STATUS)
        if status.get("state") == RUNNING and still_runs(status.get("process")) is False:
            return status | {"state": INCOMPLETE, "problem": "it was ended from outside."}
        if not status:
            status["problem"] = f"its {STATUS} cannot be read."
        if status.get("state") not in (RUNNING, COMPLETE):
            status["state"] = INCOMPLETE
        return status

    def overview(self, run: str) -> dict[str, Any]:
        """One run for the list of runs."""
        status = self.status(run)
        facts = {name: status.get(name) for name in ("state", "problem", "started", "updated")}
        facts["problem"] = None if facts["problem"] is None else str(facts["problem"])
        stamp = self.stamp(run, STATUS, SUMMARY, SCENARIO, METRICS)
        known = self._facts.get(run, stamp, lambda: self._read(run, status))
        return {"name": run, **known, **facts}

    def listing(self) -> list[dict[str, Any]]:
        """The overview of every run, the latest first."""
        found = []
        for run in self.names():
            try:
                found.append(self.overview(run))
            except UnknownRun:  # removed just now
                continue
        return sorted(found, key=lambda one: str(one["started"] or ""), reverse=True)

    def _is_run(self, run: str) -> bool:
        if not is_name(run):
            return False
        folder = self.folder(run)
        return folder.resolve() == folder and (folder / STATUS).is_file()

    def _read(self, run: str, status: dict[str, Any]) -> dict[str, Any]:
        """What does not change unless a file does."""
        summary, scenario = self.table(run, SUMMARY), self.table(run, SCENARIO)
        kind = str(status.get("kind") or ("run" if self.file(run, JOB) else "other"))
        tables = ("population", "market", "training", "privacy")
        people, money, training, privacy = (_table(scenario.get(name)) for name in tables)
        accuracy = summary.get("mean_accuracy", summary.get("accuracy"))
        draws, after = _table(summary.get("accuracies")).get("market"), None
        if kind == "run" and accuracy is None:
            accuracy, after = self._so_far(run)
        owners = summary.get("owners", people.get("owners"))
        data = training.get("data")
        return {
            "kind": kind,
            "resumable": status.get("kind") in RESUMABLE and not self.is_job(run),
            "private": summary.get("secure_noise", privacy.get("noise") != "simulated"),
            "preset": scenario.get("preset"),
            "mechanism": None if kind in _NO_MECHANISM else scenario.get("mechanism"),
            "mechanisms": status.get("mechanisms") or [],
            "seed": scenario.get("seed"),
            "owners": owners if isinstance(owners, int) else None,
            "rounds": training.get("rounds"),
            "model": training.get("model"),
            "data": Path(data).name if isinstance(data, str) and data else "mnist",
            "accuracy": accuracy if kind == "run" else None,
            "after_rounds": after,
            "draws": len(draws) if isinstance(draws, list) else 1,
            "no_trade_accuracy": summary.get("uniform_dp_accuracy"),
            "quality": summary.get("model_quality"),
            "paid": summary.get("total_paid", summary.get("total_payment")),
            "currency": money.get("currency", UNITS),
        }

    def _so_far(self, run: str) -> tuple[float | None, int | None]:
        """Accuracy after the last round of a run that is not complete, and that round."""
        path = self.file(run, METRICS)
        if path is None:
            return None, None
        try:
            with path.open("rb") as file:
                result = read_result(json.loads(last_line(file)[1]))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None, None
        return deployed(result), result.number


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def is_name(run: str) -> bool:
    """Whether a run may be called so: one plain name, not hidden."""
    plain = run.isprintable() and not (_FORBIDDEN & set(run))
    return bool(run.strip()) and plain and run[0] not in ". -" and len(run.encode()) <= 100


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

    A run folder may come from anywhere, and names its ledger itself. So only a file below the
    folder of runs is opened, and only servers that the dashboard was started with are connected to.
    """
    manifest = store.table(run, JOB)
    if not manifest:
        return None
    where, job = str(manifest.get("ledger") or ""), str(manifest.get("job") or "")
    where = where.removeprefix("sqlite:///")
    if "://" in where:
        own = next((url for url in store.ledgers if _database(url) == _database(where)), None)
        return None if own is None else RunLedger(own, job, None)
    folder = store.path(run)
    path = folder / (where or LEDGER_FILE)  # of lasting owners: with them
    if store.is_job(run) and not _readable(store, path):  # the season may have been moved
        path = folder.parents[1] / path.parent.name / path.name
    if not _readable(store, path):
        return None
    found = path.stat()
    return RunLedger(str(path), job, (found.st_mtime_ns, found.st_size, found.st_ino))


def _readable(store: RunStore, path: Path) -> bool:
    """Whether a ledger file, with all that SQLite reads with it, is below the folder of runs."""
    inside = path.is_file() and path.resolve() == path and path.is_relative_to(store.root)
    return inside and not any(path.with_name(path.name + end).is_symlink() for end in _BESIDE)


def is_elsewhere(store: RunStore, run: str) -> bool:
    """Whether a run says that its ledger is not in its folder."""
    return bool(store.table(run, JOB).get("ledger"))


def _database(url: str) -> object:
    """Server and database of a URL, without its user; any other text equals nothing."""
    with suppress(ValueError):
        parts = urlsplit(url)
        kind = parts.scheme.partition("+")[0].replace("postgresql", "postgres")
        if parts.hostname or parts.path.strip("/"):
            return kind, parts.hostname, parts.port, parts.path
    return object()
