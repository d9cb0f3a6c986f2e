"""Ends the processes of a deployment whose parent died: ``python -m ...flower.deploy.guard``.

It waits on its standard input, on which the parent names every process that it starts (``+pid``)
and has seen end (``-pid``). When the input ends, by whatever end of the parent, all of them end.
Flower's helpers leave their parent's process group: they are found by a mark in their environment,
which they inherit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

import psutil

MARK = "NOISEMARKET_DEPLOYMENT"
_PATIENCE = 5.0


def main() -> None:
    """Wait for the end of input, then end what is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    token, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    groups: set[int] = set()
    for line in sys.stdin:
        word = line.strip()
        if word == "done":
            return
        (groups.add if word.startswith("+") else groups.discard)(int(word[1:]))
    for group in groups:
        signal_group(group, signal.SIGKILL)
    end_marked(token)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def marked_processes(token: str) -> list[psutil.Process]:
    """The processes that carry a deployment's mark, but for this one."""
    found = psutil.process_iter(["environ"])  # None where another user's may not be read
    return [
        process
        for process in found
        if process.pid != os.getpid() and (process.info["environ"] or {}).get(MARK) == token
    ]


def end_marked(token: str) -> None:
    """Kill every process with this mark, and those they may still have started meanwhile."""
    end = time.monotonic() + _PATIENCE
    while (left := marked_processes(token)) and time.monotonic() < end:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=0.05)


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    main()
