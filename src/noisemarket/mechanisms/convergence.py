"""When play has settled, and how long it takes to recover from a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.outcomes import IntArray
from noisemarket.mechanisms.base import Trace
from noisemarket.mechanisms.tally import Tally

BAND = 0.02
"""Width of "settled", as a part of the whole range of savings or payments."""

TAIL = 0.1
"""Last part of a run whose mean is the level that it settles at."""

RECOVERED = 0.95
"""Part of its former efficiency that a learner must be back at to have recovered."""


@dataclass(frozen=True)
class Recovery:
    """How play took a change of preferences at iteration ``at``.

    Efficiency is the curator's gain over no trade as a share of the exact equilibrium's, under the
    preferences of the time: its mean over the last tenth before the change, and over the last tenth
    before the next one. ``iterations`` counts from the change until efficiency stays at no less
    than 95 % of what it was (None: it does not); ``settled`` until savings and payments stay where
    they end up, wherever that is (None: they do not). Without gains from trade in equilibrium there
    is no efficiency, and to recover is to settle.
    """

    at: int
    iterations: int | None
    settled: int | None
    efficiency_before: float | None
    efficiency_after: float | None
    saving_before: float
    saving_after: float
    payment_before: float
    payment_after: float


def converged_at(trace: Trace, levels: Levels) -> int | None:
    """The iteration from which mean saving and mean payment stay where they end up.

    That is: within 2 % of their whole range of the mean of the last tenth, or within what their
    noise from block to block explains, where it is more. None if not before that tenth.
    """
    settled = [
        _settled(trace.saving, levels.sigma_max),
        _settled(trace.payment, levels.payment_max),
    ]
    if any(block is None for block in settled):
        return None
    block = max(block for block in settled if block is not None)
    return 0 if block == 0 else int(trace.iteration[block - 1])


def recoveries(
    trace: Trace,
    levels: Levels,
    starts: Sequence[int],
    exact: Sequence[Tally],
    no_trade: FloatArray,
) -> list[Recovery]:
    """One entry for every change of preferences.

    ``starts`` are the phases' first iterations, ``exact`` the equilibrium of each, ``no_trade`` the
    curator's mean reward in each if nothing is traded.
    """
    edges = [*np.searchsorted(trace.iteration, starts, side="right"), len(trace.iteration)]
    parts = [slice(edges[i], edges[i + 1]) for i in range(len(starts))]
    efficiency = [
        _efficiency(trace.curator_reward[part] - no_trade[i], exact[i].curator_gain)
        for i, part in enumerate(parts)
    ]
    out = []
    for i in range(1, len(starts)):
        before, after = parts[i - 1], parts[i]
        if before.start >= before.stop or after.start >= after.stop:
            continue
        part = Trace(**{name: getattr(trace, name)[after] for name in Trace.__dataclass_fields__})
        end = converged_at(part, levels)
        settled = None if end is None else max(end - starts[i], 0)
        was, now = efficiency[i - 1], efficiency[i]
        regained = settled
        if was is not None and now is not None:
            regained = _regained(now, RECOVERED * _tail_mean(was), part.iteration, starts[i])
        out.append(
            Recovery(
                at=starts[i],
                iterations=regained,
                settled=settled,
                efficiency_before=None if was is None else _tail_mean(was),
                efficiency_after=None if now is None else _tail_mean(now),
                saving_before=_tail_mean(trace.saving[before]),
                saving_after=_tail_mean(trace.saving[after]),
                payment_before=_tail_mean(trace.payment[before]),
                payment_after=_tail_mean(trace.payment[after]),
            )
        )
    return out


def _efficiency(gains: FloatArray, possible: float) -> FloatArray | None:
    return gains / possible if possible > 0 else None


def _regained(efficiency: FloatArray, wanted: float, iteration: IntArray, start: int) -> int | None:
    """Iterations after ``start`` from which efficiency is as wanted, but for its noise."""
    if _tail_mean(efficiency) < wanted:
        return None
    below = np.flatnonzero(efficiency < wanted - _noise(_tail(efficiency)))
    return 0 if below.size == 0 else int(iteration[below[-1]]) - start


def _tail(series: FloatArray) -> FloatArray:
    return series[-max(1, round(TAIL * len(series))) :]


def _tail_mean(series: FloatArray) -> float:
    return float(_tail(series).mean())


def _noise(tail: FloatArray) -> float:
    """Three standard deviations of the noise between neighbouring blocks.

    By the median of their differences, so that neither a trend nor a jump passes for noise.
    """
    if len(tail) < 3:
        return 0.0
    return float(3.0 * 1.4826 / np.sqrt(2.0) * np.median(np.abs(np.diff(tail))))


def _settled(series: FloatArray, full_range: float) -> int | None:
    """First block from which a series stays in its band; None if that is in its tail."""
    tail = _tail(series)
    band = max(BAND * full_range, _noise(tail))
    outside = np.flatnonzero(np.abs(series - tail.mean()) > band)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    return None if first > len(series) - len(tail) else first
