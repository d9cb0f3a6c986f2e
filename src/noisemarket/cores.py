"""How many processors this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The cores that threads or workers may be spread over, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
