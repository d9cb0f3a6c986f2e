"""Processes of a deployment: each in a session and with a log of its own, none left behind, and
temporary folders with short names for their sockets, whose paths may not be long."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

from noisemarket.errors import NoisemarketError
from noisemarket.files import Closing, private_folder
from noisemarket.flower.deploy.guard import MARK, end_marked, signal_group

HOST = "127.0.0.1"
_PATIENCE = 10.0
_LOCK = "held"


class Processes:
    """Named processes with one mark, and the guard that ends them should this process die.

    ``folder``, where given, is removed by the guard in that case.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str], folder: Path | None) -> None:
        self.token = secrets.token_hex(16)
        self._logs, self._environment = logs, dict(environment)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        private_folder(logs)
        guard = [sys.executable, "-m", "noisemarket.flower.deploy.guard", self.token]
        guard += [] if folder is None else [str(folder)]
        self._guard: subprocess.Popen[str] | None = subprocess.Popen(
            guard, stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def environment(self, home: Path) -> dict[str, str]:
        """What a process of this deployment runs under; ``home`` is its own Flower folder."""
        return {**self._environment, "FLWR_HOME": str(home), MARK: self.token}

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self._logs / f"{name}.log"

    def start(
        self, name: str, command: Sequence[str], home: Path, more: Mapping[str, str] | None = None
    ) -> None:
        """Start a process, with these variables of its own; what it prints is added to its log."""
        if self.alive(name):
            raise NoisemarketError(f"{name} is running already.")
        home.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment(home), **(more or {})},
                start_new_session=True,
            )
        self._running[name] = process
        self._tell(f"+{process.pid}")

    def alive(self, name: str) -> bool:
        """Whether a process runs."""
        return name in self._running and self._running[name].poll() is None

    def pid(self, name: str) -> int:
        """The number of a process that was started."""
        return self._running[name].pid

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a process: asked to, so that it may say goodbye, or killed as by a crash."""
        process = self._running.pop(name, None)
        if process is None:
            return
        signal_group(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            process.wait()
        signal_group(process.pid, signal.SIGKILL)  # whatever of its group is left
        self._tell(f"-{process.pid}")

    def tail(self, name: str, lines: int = 5) -> str:
        """The last words of a process, for an error message."""
        try:
            text = self.log(name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return " / ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())

    def close(self) -> None:
        """End everything: all asked at once, then whatever is left is killed."""
        for name, process in self._running.items():
            if self.alive(name):
                signal_group(process.pid, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
        for name in list(self._running):
            self.stop(name, kill=True)
        end_marked(self.token)
        if self._guard is not None:
            self._tell("done")
            with contextlib.suppress(OSError):
                assert self._guard.stdin is not None
                self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def _tell(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.write(f"{line}\n")
                self._guard.stdin.flush()


class ShortFolder(Closing):
    """A temporary folder for this user alone, until ``close``; ``kind`` is part of its name.

    A process that is killed leaves its folder behind. Each folder therefore has a lock that its
    process holds; whoever makes the next one of its kind removes those that nobody holds any more.
    """

    def __init__(self, kind: str) -> None:
        prefix = f"nm-{kind}-"
        for other in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove_if_left(other)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = FileLock(unnamed, thread_local=False)
        self._lock.acquire()
        unnamed.rename(self.path / _LOCK)  # only now can others take it for one that was left

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _remove_if_left(folder: Path) -> None:
    """Remove a folder whose process has died; others, and those of other users, stay."""
    lock = folder / _LOCK
    with contextlib.suppress(OSError, Timeout):
        if not lock.is_file():
            return
        with FileLock(lock).acquire(timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


def start_heard(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a process whose output this one reads, line by line."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )


def free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until the last is found, so that they differ."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in held]


def fleet_apart() -> bool:
    """Whether this Flower's SuperLink listens to SuperNodes on another port than to all others.

    Before 1.40 it does, and by default on all of the machine's addresses.
    """
    major, minor = version("flwr").split(".")[:2]
    return (int(major), int(minor)) < (1, 40)
