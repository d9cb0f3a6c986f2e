"""How far a negotiation is, as lines of JSON for who watches it from another process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from noisemarket.pricing.mechanism import Progress, Trace, Watch

NEGOTIATING = "negotiating"
"""The kind of these lines."""

MOST_POINTS = 100
"""Points of a trace in a line at most."""

TRACE_SECONDS, TRACE_NOTES = 0.5, 50
"""How soon after one trace the next is written, at least; and how many in a time that doubles."""


def writing(write: Callable[[str], None], watch: Watch) -> Watch:
    """The same watch; what it is told is written down, too.

    Where the mechanism keeps a trace, some points of it are in the lines: of all owners finished so
    far, every half second, and ever more rarely if the negotiation takes long.
    """
    began = time.monotonic()
    due = began

    def both(seen: Progress) -> None:
        nonlocal due
        values: dict[str, Any] = {"kind": NEGOTIATING, "done": seen.done, "total": seen.total}
        if (now := time.monotonic()) >= due or seen.done == seen.total:
            due = now + max(TRACE_SECONDS, (now - began) / TRACE_NOTES)
            if (trace := seen.trace()) is not None:
                values["trace"] = points(trace)
        write(json.dumps(values) + "\n")
        watch(seen)

    return both


def points(trace: Trace) -> dict[str, list[float]]:
    """Some points of a trace, from its first to its last: means of saving and payment."""
    last = len(trace.iteration) - 1
    some = np.unique(np.linspace(0, last, MOST_POINTS).round().astype(int))
    return {
        "iteration": trace.iteration[some].tolist(),
        "saving": trace.saving[some].round(6).tolist(),
        "payment": trace.payment[some].round(6).tolist(),
    }
