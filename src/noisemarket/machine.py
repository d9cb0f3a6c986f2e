"""The machine: its cores, its name, and how long work takes on it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def available_cores() -> int:
    """The cores that threads or workers may be spread over, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_in_words() -> str:
    """Cores, processor and Python version, without the name of the host."""
    model = platform.processor() or platform.machine()
    processors = Path("/proc/cpuinfo")
    if processors.exists():
        lines = [line for line in processors.read_text().splitlines() if "model name" in line]
        model = lines[0].partition(":")[2].strip() if lines else model
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


class Effort:
    """A stopwatch: seconds by the clock, and CPU seconds of this process and its ended children."""

    def __init__(self) -> None:
        self._started, self._used = time.monotonic(), sum(os.times()[:4])

    @property
    def cpu_seconds(self) -> float:
        return sum(os.times()[:4]) - self._used

    def as_dict(self) -> dict[str, object]:
        """For the JSON of a result: machine, date and both kinds of seconds."""
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine_in_words(),
            "seconds": round(time.monotonic() - self._started, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
        }
