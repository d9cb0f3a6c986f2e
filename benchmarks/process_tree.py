"""Processor time and memory of other processes, for benchmarks that start some."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import psutil

_ADOPT_ORPHANS = 36


class ProcessTree:
    """All processes below this one, those too whose parents have ended."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1)
        self._own = psutil.Process()

    def cpu(self) -> float:
        """Seconds of processor time, user and system, of all that run and have run."""
        while True:
            with contextlib.suppress(psutil.NoSuchProcess):  # one ended just now: count again
                below = [one.cpu_times() for one in self._own.children(recursive=True)]
                own = self._own.cpu_times()
                ended = own.children_user + own.children_system
                return ended + sum(sum(times[:4]) for times in below)

    def by_name(self) -> dict[str, float]:
        """The same by the names of processes; what has ended counts for its parent's ``+``."""
        seconds: Counter[str] = Counter()
        for one in self._own.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                name, times = one.name(), one.cpu_times()
                seconds[name] += times.user + times.system
                seconds[f"{name} +"] += times.children_user + times.children_system
        return dict(seconds)

    def memory(self) -> float:
        """Megabytes in use, what several processes share counted once."""
        total = 0
        for one in self._own.children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                total += one.memory_full_info().pss
        return total / 1e6


def negotiated(*words: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The summary of the whole command ``negotiate``, run folder and all, and what it took."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["negotiate", "--json", "--out", f"{scratch}/run", *words]
        start = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "noisemarket", *command], stdout=subprocess.PIPE
        ) as run:
            assert run.stdout is not None
            summary = json.loads(run.stdout.read())
            _, _, usage = os.wait4(run.pid, 0)
            run.returncode = 0
        wall = time.perf_counter() - start
    return summary, {
        "wall_seconds": wall,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_gb": usage.ru_maxrss / 2**20,
    }
