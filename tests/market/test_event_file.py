"""What is written of a negotiation while it goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisemarket.game.environment import Contracts
from noisemarket.market import events
from noisemarket.market.events import MOST_POINTS, points, writing
from noisemarket.pricing.mechanism import Progress, Trace


def trace(length: int, of: float = 1.0) -> Trace:
    ramp = np.linspace(0.0, of, length)
    return Trace(np.arange(1, length + 1) * 50, ramp, 2 * ramp, *[ramp] * 5)


@pytest.mark.parametrize("length", [1, 2, MOST_POINTS, 20_000])
def test_points_span_the_trace_and_are_few(length: int) -> None:
    found = points(trace(length))
    assert len(found["iteration"]) == min(length, MOST_POINTS)
    assert (found["iteration"][0], found["iteration"][-1]) == (50, 50 * length)
    assert found["payment"] == pytest.approx([2 * one for one in found["saving"]], abs=2e-6)


def test_traces_are_written_rarely_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines, seen = 0.0, list[dict[str, Any]](), list[int]()
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    watch = writing(lines.append, lambda one: seen.append(one.done))
    total = 20_000
    for done in range(1, total + 1):
        now += 0.1
        nobody = Contracts.same(0, 0, 0)
        watch(Progress(slice(0, 0), nobody, done, total, lambda: trace(3)))
    assert seen == list(range(1, total + 1))
    assert [one["done"] for one in lines] == seen
    traced = [one["done"] for one in lines if "trace" in one]
    assert traced[0] == 1
    assert traced[-1] == total
    # Every half second for 25 seconds, then fifty in a time that grows e-fold.
    assert 200 < len(traced) < 50 * (1 + np.log(2000 / 25)) + 10
