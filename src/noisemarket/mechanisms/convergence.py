"""When play has settled, and how long it takes to settle again after a change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import FloatArray, Levels
from noisemarket.mechanisms.base import Trace

BAND = 0.02
"""Width of "settled", as a part of the whole range of savings or payments."""

TAIL = 0.1
"""Last part of a run whose mean is the level that it settles at."""


@dataclass(frozen=True)
class Recovery:
    """How play came to rest after the preferences changed at iteration ``at``.

    ``iterations`` counts from the change until savings and payments stay where they end up (None:
    they did not before the next change or the end). The levels are means of the last tenth before
    the change, and of the last tenth after it.
    """

    at: int
    iterations: int | None
    saving_before: float
    saving_after: float
    payment_before: float
    payment_after: float


def converged_at(trace: Trace, levels: Levels) -> int | None:
    """The iteration from which mean saving and mean payment stay where they end up.

    That is: within 2 % of their whole range of the mean of the last tenth (or three standard
    deviations of the last tenth, where play is noisier than that). None if not before that tenth.
    """
    settled = [
        _settled(trace.saving, levels.sigma_max),
        _settled(trace.payment, levels.payment_max),
    ]
    if any(block is None for block in settled):
        return None
    block = max(block for block in settled if block is not None)
    return 0 if block == 0 else int(trace.iteration[block - 1])


def recoveries(trace: Trace, levels: Levels, starts: list[int]) -> list[Recovery]:
    """One entry for every change of preferences; ``starts`` are the phases' first iterations."""
    bounds = [start for start in starts if start < trace.iteration[-1]]
    edges = [*np.searchsorted(trace.iteration, bounds, side="right"), len(trace.iteration)]
    out = []
    for i in range(1, len(bounds)):
        before, after = slice(edges[i - 1], edges[i]), slice(edges[i], edges[i + 1])
        if before.start >= before.stop or after.start >= after.stop:
            continue
        part = Trace(**{name: getattr(trace, name)[after] for name in Trace.__dataclass_fields__})
        end = converged_at(part, levels)
        out.append(
            Recovery(
                at=bounds[i],
                iterations=None if end is None else max(end - bounds[i], 0),
                saving_before=_tail_mean(trace.saving[before]),
                saving_after=_tail_mean(trace.saving[after]),
                payment_before=_tail_mean(trace.payment[before]),
                payment_after=_tail_mean(trace.payment[after]),
            )
        )
    return out


def _tail(series: FloatArray) -> FloatArray:
    return series[-max(1, round(TAIL * len(series))) :]


def _tail_mean(series: FloatArray) -> float:
    return float(_tail(series).mean())


def _settled(series: FloatArray, full_range: float) -> int | None:
    """First block from which a series stays in its band; None if that is in its tail."""
    tail = _tail(series)
    band = max(BAND * full_range, 3.0 * float(tail.std()))
    outside = np.flatnonzero(np.abs(series - tail.mean()) > band)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    return None if first > len(series) - len(tail) else first
