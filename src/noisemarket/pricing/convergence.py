"""When play has settled, and how long it takes to recover from a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import FloatArray, IntArray, Levels
from noisemarket.game.value import Worth
from noisemarket.pricing.mechanism import Trace

BAND = 0.02
"""Width of "settled", as a part of the whole range of savings or payments."""

TAIL = 0.1
"""Last part of a run whose mean is the level that it settles at."""

FEWEST_BLOCKS = 10
"""With fewer blocks in a trace, it cannot be said whether it has settled."""

RECOVERED = 0.95
"""Part of its former efficiency that a learner must be back at to have recovered."""


@dataclass(frozen=True)
class Recovery:
    """How play recovered from a change of preferences at iteration ``at``.

    Efficiency is the curator's gain over no trade as a share of the exact equilibrium's, under the
    preferences of the time: its mean over the last tenth before the change, and over the last tenth
    before the next one; None where the equilibrium has no gain, or for a change that lies in one
    block of the trace with the next. ``iterations`` counts from the change until efficiency stays
    at no less than 95 % of what it was or, where there is none, until savings and payments stay
    where they end up (None: they do not).
    """

    at: int
    iterations: int | None
    efficiency_before: float | None
    efficiency_after: float | None


def converged_at(trace: Trace, levels: Levels) -> int | None:
    """The iteration from which mean saving and mean payment stay where they end up.

    That is: within 2 % of their whole range of the mean of the last tenth, or within what their
    noise from block to block explains, where it is more. None if not before that tenth, or if the
    trace has fewer than ten blocks. A run that drifts on for ever settles the later the longer it
    is: compare times only at equal length.
    """
    saving = settled_at(trace.saving, trace.iteration, levels.sigma_max)
    payment = settled_at(trace.payment, trace.iteration, levels.payment_max)
    return None if saving is None or payment is None else max(saving, payment)


def settled_at(series: FloatArray, iteration: IntArray, full_range: float) -> int | None:
    """The same for one series, whose blocks end at the given iterations."""
    if len(series) < FEWEST_BLOCKS:
        return None
    tail = _tail(series)
    band = max(BAND * full_range, _noise(tail))
    outside = np.flatnonzero(np.abs(series - tail.mean()) > band)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    if first > len(series) - len(tail):
        return None
    return 0 if first == 0 else int(iteration[first - 1])


def recoveries(
    trace: Trace,
    levels: Levels,
    starts: Sequence[int],
    exact: Sequence[Worth],
    no_trade: FloatArray,
) -> list[Recovery]:
    """One entry for every change of preferences.

    ``starts`` are the phases' first iterations, ``exact`` the equilibrium of each, ``no_trade`` the
    curator's mean reward in each if nothing is traded.
    """
    edges = [*np.searchsorted(trace.iteration, starts, side="right"), len(trace.iteration)]
    parts = [slice(edges[i], edges[i + 1]) for i in range(len(starts))]
    efficiency = [
        (trace.curator_reward[part] - nothing) / best.curator_gain
        if best.curator_gain > 0 and part.start < part.stop
        else None
        for part, best, nothing in zip(parts, exact, no_trade, strict=True)
    ]
    out = []
    for i in range(1, len(starts)):
        was, now = efficiency[i - 1], efficiency[i]
        part = Trace(**{name: series[parts[i]] for name, series in vars(trace).items()})
        if was is None or now is None:
            end = converged_at(part, levels)
            back = None if end is None else max(end - starts[i], 0)
        else:
            back = _regained(now, RECOVERED * _tail_mean(was), part.iteration, starts[i])
        ends = (None if one is None else _tail_mean(one) for one in (was, now))
        out.append(Recovery(starts[i], back, *ends))
    return out


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
