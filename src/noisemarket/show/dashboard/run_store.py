"""The run folders below one folder: which there are, and how each stands.

Nothing outside of that folder is ever read: a path that a name, or a symlink, leads elsewhere is
treated as one that does not exist.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import private_folder, unusable
from noisemarket.market.run_folder import STATUS, still_runs
from noisemarket.show.dashboard.kept import Kept

RUNNING, COMPLETE, INCOMPLETE = "running", "complete", "incomplete"
SUMMARY, SCENARIO, COMPARISON = "summary.json", "scenario.toml", "comparison.json"
CONTRACTS, PARTIAL = "contracts.csv", "contracts.partial.csv"
LOGS = ".dashboard"
"""Where the output of runs goes that were started from the page."""

_FILES = {
    "compare": (COMPARISON, "plan.json"),
    "calibrate": ("points.jsonl", "calibration.json"),
    "train": ("metrics.jsonl", "checkpoint.npz"),
    "negotiate": (CONTRACTS, PARTIAL),
}
"""What tells which command wrote a run folder, where its status does not."""

_FORBIDDEN = set('/\\:\0\n\r"<>|?*')


class UnknownRun(NoisemarketError):
    """There is no such run, or it has no such part."""


class RunStore:
    """All runs of a folder.

    Args:
        root: the folder that holds run folders. It is made if it does not exist.
        ledgers: URLs of the ledgers on servers that may be read.

    Attributes:
        answers: what pages ask for, kept for all who ask.

    Raises:
        BadInput: it is not a folder, or is a run folder itself.
    """

    def __init__(self, root: Path, ledgers: Sequence[str] = ()) -> None:
        if (root / STATUS).is_file():
            remedy = "is a run folder: name the folder that holds it."
            raise BadInput("RUNS_FOLDER", str(root), remedy)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise unusable("RUNS_FOLDER", root, "used", problem) from None
        self.root = root.resolve()
        self.ledgers = tuple(ledgers)
        self.answers: Kept[Any] = Kept(64)
        self._facts: Kept[dict[str, Any]] = Kept(10_000)

    def private(self) -> Path:
        """A folder for this user alone beside the runs, which is not a run."""
        return private_folder(self.root / LOGS)

    def names(self) -> list[str]:
        """The names of all run folders."""
        return sorted(one.name for one in self.root.iterdir() if self._is_run(one.name))

    def path(self, run: str) -> Path:
        """The folder of a run.

        Raises:
            UnknownRun: there is none of that name.
        """
        if not self._is_run(run):
            raise UnknownRun("There is no such run in this folder.")
        return self.root / run

    def new_path(self, run: str) -> Path:
        """The folder that a new run may be given.

        Raises:
            BadInput: no run may have that name, or one has it.
        """
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
        found = self.document(run, name)
        return found if isinstance(found, dict) else {}

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
        if status.get("state") not in (RUNNING, COMPLETE):
            status["state"] = INCOMPLETE
        return status

    def overview(self, run: str) -> dict[str, Any]:
        """What the list of runs says of one."""
        status = self.status(run)
        facts = {name: status.get(name) for name in ("state", "problem", "started", "updated")}
        facts["problem"] = None if facts["problem"] is None else str(facts["problem"])
        stamp = self.stamp(run, STATUS, SUMMARY, SCENARIO)
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
        folder = self.root / run
        return is_name(run) and not folder.is_symlink() and (folder / STATUS).is_file()

    def _read(self, run: str, status: dict[str, Any]) -> dict[str, Any]:
        """What does not change unless a file does."""
        summary, scenario = self.table(run, SUMMARY), self.table(run, SCENARIO)
        kind, people = self.kind(run, status), scenario.get("population")
        accuracy = summary.get("mean_accuracy", summary.get("accuracy"))
        owners = summary.get("owners", people.get("owners") if isinstance(people, dict) else None)
        return {
            "kind": kind,
            "preset": scenario.get("preset"),
            "mechanism": None if kind == "compare" else scenario.get("mechanism"),
            "mechanisms": status.get("mechanisms") or [],
            "seed": scenario.get("seed"),
            "owners": owners if isinstance(owners, int) else None,
            "accuracy": accuracy if kind in ("run", "train") else None,
            "no_trade_accuracy": summary.get("uniform_dp_accuracy"),
            "quality": summary.get("model_quality"),
            "paid": summary.get("total_paid", summary.get("total_payment")),
        }

    def kind(self, run: str, status: dict[str, Any]) -> str:
        """Which command wrote a run folder: run, compare, negotiate, or another."""
        if "engine" in status:
            return "run"
        if "mechanisms" in status:
            return "compare"
        found = (kind for kind, names in _FILES.items() if any(self.stamp(run, *names)))
        return next(found, "other")


def is_name(run: str) -> bool:
    """Whether a run may be called so: one plain name, not hidden."""
    plain = run.isprintable() and not (_FORBIDDEN & set(run))
    return bool(run.strip()) and plain and run[0] not in ". -" and len(run.encode()) <= 100
