"""Where a run keeps its files, whole or not at all: any run, and a market.

A market has, for the curator, for each owner, and for all:

scenario.toml    the scenario, to repeat the experiment
market.json      the job: its name, when it was opened, where its ledger is
outcome.json     what the job came to, once it is settled
ledger.sqlite    the ledger, unless it is elsewhere
curator/         the curator's key, events, trace, checkpoint, metrics and model, the ledger's head,
                 and receipts
owners/          the accountant's journal and, until all is settled, the key of the noise
owners/owner-X/  an owner's key, its secrets, its contract and its privacy statement
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import (
    LOCK,
    UNFINISHED,
    Lock,
    exclusive,
    not_written,
    private_folder,
    read_private,
    refuse_open,
    unusable,
    write_atomic,
    write_json,
)
from noisemarket.privacy.noise import KEY_BYTES, KeyedNoise

if TYPE_CHECKING:
    from noisemarket.federated.rounds import RoundResult

STATUS = "status.json"


class RunFolder:
    """A folder with a ``status.json`` that says running, complete or incomplete.

    ``create`` and ``reopen`` lock it against all other runs until the ``with`` block ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_complete = False
        self._started = _now()
        self._facts: dict[str, object] = {}
        self._lock: Lock | None = None

    @classmethod
    def create(
        cls, out: str | None, stem: str, *, overwrite: bool = False, inputs: Sequence[str] = (),
        **facts: object,
    ) -> RunFolder:  # fmt: skip
        """Start a new run in ``out``, by default a new folder under ``runs/``, named by time and
        ``stem``.

        With ``overwrite`` an earlier run's folder is replaced, unless it holds one of ``inputs``.
        ``facts`` are in each of its statuses.
        """
        path = Path(out) if out else fresh_path(Path("runs"), stem)
        folder = cls(path)
        folder._facts = facts
        try:
            cls.check(path, overwrite, inputs)
            path.mkdir(exist_ok=True)
            folder._lock = exclusive(path, "out")
            if _replaces(path, overwrite, inputs):
                _empty(path)
            folder.status("running")
        except OSError as problem:
            raise unusable("out", path, "written", problem) from None
        return folder

    @classmethod
    def check(cls, path: Path, overwrite: bool, inputs: Sequence[str] = ()) -> None:
        """Refuse a path that no run can have, as ``create`` would; makes the folders above it."""
        try:
            _replaces(path, overwrite, inputs)
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise unusable("out", path, "written", problem) from None

    @classmethod
    def reopen(cls, path: Path, **facts: object) -> RunFolder:
        """Go on with an earlier run: its status says running again, and ``facts`` from now on."""
        folder = cls(path)
        folder._lock = exclusive(path, "resume")
        status = read_status(path)
        folder.was_complete = status.get("state") == "complete"
        folder._started = str(status.get("started", folder._started))
        folder.note(kind=status.get("kind"), **facts)
        return folder

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: object, trace: object) -> None:
        """Write that the run is incomplete if an error ends it, and release the folder."""
        if kind is not None:
            told = f"{kind.__name__}: {problem}".rstrip(": ")
            try:
                self.status("incomplete", problem=told)
            except (NoisemarketError, OSError):
                self._status_in_place("incomplete", problem=told)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def note(self, **facts: object) -> None:
        """Write that the run is running, with facts that every later status has as well."""
        self._facts |= facts
        self.status("running")

    def status(self, state: str, **more: object) -> None:
        """Write the state of the run: running, complete or incomplete."""
        self.write_json(STATUS, self._status(state, more))

    def _status_in_place(self, state: str, **more: object) -> None:
        """The same where the disk is full: over the status that is there, which has its room."""
        text = json.dumps(self._status(state, more), indent=2) + "\n"
        with contextlib.suppress(OSError), (self.path / STATUS).open("r+b") as file:
            file.write(text.encode())
            file.truncate()

    def _status(self, state: str, more: Mapping[str, object]) -> dict[str, object]:
        from noisemarket import __version__

        return {
            "state": state,
            "started": self._started,
            "updated": _now(),
            "noisemarket": __version__,
            "python": sys.version.split()[0],
            "process": this_process(),
            **self._facts,
            **more,
        }

    def write_text(self, name: str, text: str, *, private: bool = False) -> None:
        """Write a file, whole or not at all; if ``private``, for this user alone."""
        write_atomic(self._path(name), text, private=private)

    def copy(self, file: str, name: str, *, private: bool = False) -> None:
        try:
            content = Path(file).read_bytes()
        except OSError as problem:
            raise unusable("file", file, "read", problem) from None
        write_atomic(self._path(name), content, private=private)

    def write_json(self, name: str, document: Any) -> None:
        write_json(self._path(name), document)

    def _path(self, name: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def append(self, name: str, text: str, *, private: bool = False) -> None:
        """Add lines to a file that grows while a run goes on, perhaps for this user alone."""
        path = self.path / name
        try:
            opened = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600 if private else 0o666
            )
            with os.fdopen(opened, "a", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as problem:
            raise not_written(path, problem) from None

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def this_process() -> dict[str, object]:
    """What tells this process from all others: its machine, its number, when it began."""
    own = psutil.Process()
    return {"host": platform.node(), "id": own.pid, "began": own.create_time()}


def still_runs(process: object) -> bool | None:
    """Whether a process that ``this_process`` described is running; None if one cannot tell."""
    match process:
        case {"host": str(host), "id": int(number), "began": float(began)} if number > 0:
            if host != platform.node():
                return None
            try:
                found = psutil.Process(number)
                same = abs(found.create_time() - began) < 1.0
                return same and found.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                return False
        case _:
            return None


def read_status(path: Path) -> dict[str, Any]:
    """The status of a run folder."""
    try:
        return dict(json.loads((path / STATUS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise BadInput("resume", str(path / STATUS), "cannot be read.") from None


def _replaces(path: Path, overwrite: bool, inputs: Sequence[str]) -> bool:
    """Whether an earlier run is to be replaced; whatever else is there is refused."""
    if not path.exists() or (path.is_dir() and all(map(_is_begun, path.iterdir()))):
        return False
    if path.is_symlink() or not (path / STATUS).is_file():
        raise BadInput("out", str(path), "exists and is not a run folder: choose another name.")
    if not overwrite:
        remedy = "exists already: rename, or --overwrite it."
        with contextlib.suppress(BadInput):  # a status that cannot be read
            if read_status(path).get("state") != "complete":
                remedy = "exists already, not complete: resume it, rename, or --overwrite it."
        raise BadInput("out", str(path), remedy)
    if any(path.resolve() in Path(file).resolve().parents for file in inputs):
        raise BadInput("out", str(path), "holds an input of this run: rename.")
    return True


def _is_begun(path: Path) -> bool:
    """Whether a run that was killed at its very beginning leaves this: a lock, half a status."""
    unfinished = path.name.startswith(f".{STATUS}.") and path.name.endswith(UNFINISHED)
    return path.name == LOCK or unfinished


def _empty(path: Path) -> None:
    for one in path.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        elif one.name != LOCK:
            one.unlink()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def fresh_path(parent: Path, stem: str) -> Path:
    """A name by the time and ``stem`` that nothing in the folder has."""
    base = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{stem}".replace(":", "-")
    path, number = parent / base, 1
    while path.exists():
        number += 1
        path = parent / f"{base}-{number}"
    return path


VALID_HOURS = 24.0
"""How long an offer may be signed."""

JOB = "market.json"
SCENARIO = "scenario.toml"
JOURNAL = "privacy.journal"
CHECKPOINT = "checkpoint.npz"
METRICS = "metrics.jsonl"
MODEL = "model.npz"
TRACE = "trace.csv"
NOISE_KEY = "noise.key"
HEAD = "head.json"
"""The ledger's head, as the curator noted it last."""
LASTING = "lasting.json"
"""Where owners that outlive the run are, and the least noise of each when the job began."""


@dataclass(frozen=True)
class JobManifest:
    """What is fixed when a job is opened, and must be the same when it is resumed."""

    job: str
    opened_at: str
    expires_at: str
    ledger: str


class MarketFolder:
    """A run folder as the market uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.curator, self.owners = path / "curator", path / "owners"

    def manifest(self, ledger: str = "") -> JobManifest:
        """The job's manifest, written on the first call."""
        path = self.path / JOB
        if path.exists():
            try:
                return JobManifest(**json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError):
                raise BadInput("resume", str(path), "cannot be read: start anew.") from None
        now = datetime.now(UTC)
        until = now + timedelta(hours=VALID_HOURS)
        opened, expires = (when.isoformat(timespec="milliseconds") for when in (now, until))
        manifest = JobManifest(secrets.token_hex(16), opened, expires, ledger)
        RunFolder(self.path).write_json(JOB, asdict(manifest))
        return manifest

    def ledger(self, manifest: JobManifest) -> str:
        """Where the job's ledger is: a URL, or a file in the folder."""
        from noisemarket.ledger.store import LEDGER_FILE  # slow to import

        return manifest.ledger or str(self.path / LEDGER_FILE)

    def prepare(self) -> None:
        """Make the folders that only their owners may enter."""
        for path in (self.curator, self.owners):
            private_folder(path)

    def write_metrics(self, results: Sequence[RoundResult]) -> None:
        """Add rounds to the metrics; from the first round on, or from none, they begin anew."""
        folder = RunFolder(self.curator)
        lines = "".join(json.dumps(result.to_dict()) + "\n" for result in results)
        if not results or results[0].number == 1:
            folder.write_text(METRICS, lines)
        else:
            folder.append(METRICS, lines)

    def noise_key(self) -> bytes:
        """The secret key of all owners' noise, drawn on the first call: with it, a round that was
        cut off is made again bit by bit and costs nothing more."""
        path = self.owners / NOISE_KEY
        if not path.exists():
            refuse_open(path.parent, "noise key", "start anew")
            write_atomic(path, KeyedNoise.new_key(), private=True)
        key = read_private(path, "noise key", "start anew")
        if len(key) != KEY_BYTES:
            raise BadInput("noise key", str(path), "is damaged: the job cannot be resumed.")
        return key

    def forget_noise_key(self) -> None:
        """Delete the key of the noise: with it and the uploads the noise could be removed."""
        path = self.owners / NOISE_KEY
        try:
            path.unlink(missing_ok=True)
        except OSError as problem:
            why = problem.strerror or problem
            raise NoisemarketError(f"{path} cannot be deleted: {why}.") from None
