"""Starting, stopping and resuming runs: ordinary commands, in processes of their own.

A run does not end with the page, nor with the server: it is what ``noisemarket run`` in another
terminal would be.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import LOCK
from noisemarket.market.run_folder import STATUS, still_runs
from noisemarket.show.dashboard.run_store import (
    COMPLETE,
    LOGS,
    RESUMABLE,
    RUNNING,
    RunStore,
    UnknownRun,
)

PATIENCE = 20.0
"""Seconds that a request waits until a run that was started has a folder, or says why not."""


class TooManyRuns(NoisemarketError):
    """As many runs as allowed are going on."""


class WrongState(NoisemarketError):
    """A run that is not in the state that was asked for: not running, or running already."""


class Launcher:
    """Starts commands that write below one folder, a few at a time."""

    def __init__(self, store: RunStore, most: int = 2) -> None:
        self._store, self._most = store, most
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, run: str, command: str, words: Sequence[str]) -> bool:
        """Start ``noisemarket COMMAND WORDS... --out RUN``; whether it has ``begun``."""
        with self._lock:
            path = self._store.new_path(run)
            self._make_room()
            if run in self._children:  # its folder is not there yet
                raise BadInput("name", run, "exists already: choose another.")
            child = self._spawn(run, [command, *words, "--out", str(path)])
        return self._await(run, child, lambda: (path / STATUS).is_file())

    def begun(self, run: str) -> bool:
        """Whether a run that was started has its folder by now; BadInput if it has given up.

        A job of a new shape measures its loss surface first, which takes from seconds to hours.
        """
        child, there = self._children.get(run), self._store.folder(run) / STATUS
        if child is None:
            return bool(self._store.path(run))
        return there.is_file() or self._await(run, child, there.is_file)

    def resume(self, run: str) -> None:
        """Go on with a run of the whole market that was stopped."""
        with self._lock:
            self._reap()
            status = self._store.status(run)
            state = RUNNING if run in self._children else status["state"]
            if state in (RUNNING, COMPLETE):
                raise WrongState(f"This run is {state}: there is nothing to resume.")
            if self._store.is_job(run):
                raise WrongState("This is a job of a season: resume the season.")
            if status.get("kind") not in RESUMABLE:
                raise WrongState("Only a run of the whole market, or a season, can be resumed.")
            self._make_room()
            child = self._spawn(run, ["run", "--resume", str(self._store.path(run))])
        self._await(run, child, lambda: self._store.status(run)["state"] == RUNNING)

    def stop(self, run: str) -> None:
        """Ask a run to stop; finished work stays, and the run can be resumed.

        Only a process that works in this very folder is asked: what a status says may have been
        copied from another folder or another machine, or be about a number that was used again.
        """
        status = self._store.status(run)
        if status["state"] != RUNNING:
            raise WrongState("This run is not running: there is nothing to stop.")
        found = works_in(self._store.path(run), status.get("process"))
        if found is None:
            words = "This run cannot be stopped from here: no process of this machine works in it."
            raise WrongState(words)
        with contextlib.suppress(psutil.NoSuchProcess):  # ended by itself just now
            found.terminate()

    def _make_room(self) -> None:
        """Refuse one more run; a folder that another machine's run is in takes no room."""
        self._reap()
        busy: set[object] = {child.pid for child in self._children.values()}
        for run in {*self._store.names()} - {*self._children}:
            with contextlib.suppress(UnknownRun):  # removed just now
                status = self._store.status(run)
                process = status.get("process")
                if isinstance(process, dict) and status["state"] == RUNNING:
                    busy |= {process["id"]} if still_runs(process) else set()
        if len(busy) >= self._most:
            words = f"As many runs as may ({self._most}) are going on: wait, or stop one."
            raise TooManyRuns(words)

    def _reap(self) -> None:
        """Forget children that have ended. The caller holds the lock."""
        for run in [run for run, child in self._children.items() if child.poll() is not None]:
            del self._children[run]

    def _spawn(self, run: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._store.private() / f"{run}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "noisemarket", *words],
                cwd=self._store.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the server's terminal does not reach it
            )
        self._children[run] = child
        return child

    def _await(self, run: str, child: subprocess.Popen[bytes], reached: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            code = child.poll()
            if code == 0 or (code is None and reached()):
                return True
            if code is not None:
                with self._lock:
                    self._reap()
                raise BadInput("run", run, reason_in(self._store.root / LOGS / f"{run}.log"))
            time.sleep(0.05)
        return False


def works_in(folder: Path, process: Any) -> psutil.Process | None:
    """The process of a status, if it is the one that has locked this folder; else None."""
    if not still_runs(process):
        return None
    try:
        found = psutil.Process(process["id"])
        held = {Path(one.path) for one in found.open_files()}
    except (psutil.Error, OSError):
        return None
    return found if folder / LOCK in held else None


def reason_in(log: Path) -> str:
    """Why a command gave up: its own sentence."""
    with contextlib.suppress(OSError):
        for line in reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()):
            if line.startswith("noisemarket: "):
                return line.removeprefix("noisemarket: ")
    return "ended before it began: see its log in the runs folder."
