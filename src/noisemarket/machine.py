"""What a measurement was made on, when, and what it took: written by whatever measures."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def machine_in_words() -> str:
    """What this runs on, without naming the host.

    Example:
        >>> machine_in_words().split(", ")[-1].startswith("Python 3.")
        True
    """
    model = platform.processor() or platform.machine()
    processors = Path("/proc/cpuinfo")
    if processors.exists():
        lines = [line for line in processors.read_text().splitlines() if "model name" in line]
        model = lines[0].partition(":")[2].strip() if lines else model
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


class Effort:
    """What is done from here on: seconds by the clock, and of processors.

    Processor seconds count this process and its children once they have ended. They say what a
    quiet machine would take, where seconds by the clock depend on what else it does.

    Example:
        >>> sorted(Effort().as_dict())
        ['cpu_seconds', 'date', 'machine', 'seconds']
    """

    def __init__(self) -> None:
        self._started, self._used = time.monotonic(), sum(os.times()[:4])

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds so far."""
        return sum(os.times()[:4]) - self._used

    def as_dict(self) -> dict[str, object]:
        """For the JSON of a result: machine, date and both kinds of seconds."""
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine_in_words(),
            "seconds": round(time.monotonic() - self._started, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
        }
