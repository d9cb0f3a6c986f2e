"""Runs commands of Flower in copies of a process that has imported what they need.

    python -P -m noisemarket.flower.deploy.warm_server SOCKET MODULE...

Flower starts a process for every message, and most of what it costs are imports. This process does
them once and forks: each command runs in a process of its own as before, with the variables, the
folder, the input and the output of whoever asked (``warm_launch``). This process itself runs no
app, reads no record and no key, and has one thread. Noise and keys come from the kernel's
randomness, which no copy shares. Only processes of the same user are answered.

It ends when its input ends, and its commands end with it, or with the process that asked for them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from noisemarket.flower.deploy.warm_launch import STARTED

COMMANDS = ("flower-supernode", "flower-superexec", "flwr-clientapp", "flwr")
"""The commands of Flower that can be run."""

_PATIENCE = 10.0
_SIGNAL_AT_PARENTS_DEATH, _NAME = 1, 15
_ended = [0]


@dataclass(frozen=True)
class Asked:
    """A command to run, and where."""

    words: list[str]
    folder: str
    variables: dict[str, str]
    files: list[int]

    @classmethod
    def over(cls, line: socket.socket) -> Asked:
        """What is asked over a new line, if it can be understood and this user asks."""
        size = struct.calcsize("3i")
        peer = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        if struct.unpack("3i", peer)[1] != os.getuid():
            raise OSError("another user asks")
        line.settimeout(_PATIENCE)
        head, files, _, _ = socket.recv_fds(line, 4, 3)
        try:
            with line.makefile("rb") as said:
                given = json.loads(said.read(int.from_bytes(head, "big")))
            if len(files) != 3 or given["words"][0] not in COMMANDS:
                raise ValueError("no command of Flower")
            return cls(given["words"], given["folder"], given["variables"], files)
        except BaseException:
            for file in files:
                os.close(file)
            raise

    def enter(self) -> None:
        """Make this process the one that was asked for."""
        for number, file in enumerate(self.files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(self.variables)
        os.chdir(self.folder)
        sys.argv[:] = self.words


@dataclass(frozen=True)
class Running:
    """A command that runs: its process, and the line to whoever waits for it."""

    pid: int
    ended: int
    line: socket.socket

    def pass_on(self) -> None:
        """Send the signal that came over the line; kill it if the other side is gone."""
        told = b""
        with contextlib.suppress(OSError):
            told = self.line.recv(1)
        number = told[0] if told else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.ended, number)

    def finish(self) -> None:
        """Say how it ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with contextlib.suppress(OSError):
            self.line.sendall(bytes([code if code >= 0 else 128 - code]))
        self.close()

    def close(self) -> None:
        """Let go of it."""
        os.close(self.ended)
        self.line.close()


def serve(listener: socket.socket) -> Asked | None:
    """Run commands, each in a copy of this process, until the input ends: then None. In a copy:
    what that is to run."""
    running: list[Running] = []
    while True:
        by_line = {one.line.fileno(): one for one in running}
        by_end = {one.ended: one for one in running}
        ready, _, _ = select.select([0, listener.fileno(), *by_line, *by_end], [], [])
        if 0 in ready:
            return None
        for number in ready:
            if number in by_end:
                running.remove(by_end[number])
                by_end[number].finish()
            elif number in by_line and by_line[number] in running:
                by_line[number].pass_on()
        if listener.fileno() not in ready:
            continue
        line, _ = listener.accept()
        try:
            asked = Asked.over(line)
            pid = os.fork()
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            line.close()  # whoever asked runs the command itself
            continue
        if pid == 0:
            _become(asked.words[0])
            for one in running:
                one.close()
            line.close()
            listener.close()
            return asked
        for file in asked.files:
            os.close(file)
        running.append(Running(pid, os.pidfd_open(pid), line))
        with contextlib.suppress(OSError):
            line.sendall(STARTED)


def _become(name: str) -> None:
    """Give this process the command's name, and have it killed when the server dies."""
    library = ctypes.CDLL(None)
    library.prctl(_SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)
    library.prctl(_NAME, name.encode())


def _run(command: Callable[[], Any]) -> None:
    """Run a command to its end, and note the exit code."""
    try:
        command()
    except SystemExit as end:
        _ended[0] = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    except BaseException:
        _ended[0] = 1
        raise


def _leave() -> None:
    """End without taking all that was imported apart: that takes time and has no effect."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_ended[0])


def main() -> None:
    """Import, listen, and serve."""
    address, *modules = sys.argv[1:]
    atexit.register(_leave)  # before any other: it then comes last
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scripts = entry_points(group="console_scripts")
    commands = {one.name: one.load() for one in scripts if one.name in COMMANDS}
    for name in modules:
        import_module(name)
    if threading.active_count() > 1:
        raise SystemExit("An import has started a thread: no process can be copied safely.")
    gc.freeze()  # what is imported stays shared with the copies
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(128)
    if (asked := serve(listener)) is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.enter()
        _run(commands[asked.words[0]])


if __name__ == "__main__":
    main()
