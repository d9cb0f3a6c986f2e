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
    before the next one. ``iterations`` counts from the change until efficiency stays at no less
    than 95 % of what it was (None: it does not); ``settled`` until savings and payments stay where
    they end up, wherever that is (None: they do not). Levels are None for a change that lies in one
    block of the trace with the next. Without gains from trade in equilibrium there
    is no efficiency, and to recover is to settle.
    """

    at: int
    iterations: int | None
    settled: int | None
    efficiency_before: float | None
    efficiency_after: float | None
    saving_before: float | None
    saving_after: float | None
    payment_before: float | None
    payment_after: float | None


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
    gains = [trace.curator_reward[part] - no_trade[i] for i, part in enumerate(parts)]
    efficiency = [
        gain / best.curator_gain if best.curator_gain > 0 else None
        for gain, best in zip(gains, exact, strict=True)
    ]
    out = []
    for i in range(1, len(starts)):
        before, after = parts[i - 1], parts[i]
        part = Trace(**{name: getattr(trace, name)[after] for name in Trace.__dataclass_fields__})
        end = converged_at(part, levels)
        settled = None if end is None else max(end - starts[i], 0)
        was, now = efficiency[i - 1], efficiency[i]
        regained = settled
        if was is not None and now is not None and len(was) and len(now):
            regained = _regained(now, RECOVERED * _tail_mean(was), part.iteration, starts[i])
        out.append(
            Recovery(
                at=starts[i],
                iterations=regained,
                settled=settled,
                efficiency_before=None if was is None else _level(was),
                efficiency_after=None if now is None else _level(now),
                saving_before=_level(trace.saving[before]),
                saving_after=_level(trace.saving[after]),
                payment_before=_level(trace.payment[before]),
                payment_after=_level(trace.payment[after]),
            )
        )
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


def _level(series: FloatArray) -> float | None:
    """Where a part of a trace ends; None for a part without a block of its own."""
    return _tail_mean(series) if len(series) else None


def _noise(tail: FloatArray) -> float:
    """Three standard deviations of the noise between neighbouring blocks.

    By the median of their differences, so that neither a trend nor a jump passes for noise.
    """
    if len(tail) < 3:
        return 0.0
    return float(3.0 * 1.4826 / np.sqrt(2.0) * np.median(np.abs(np.diff(tail))))
