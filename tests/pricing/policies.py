"""Random policies, and numbers at the edge of what they can hold."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from noisemarket.game.levels import FloatArray

LAST_UNIFORM = 1.0 - 2.0**-32
"""The largest number that a stream gives to a player."""

OVERFULL = np.array([8, 0, 8, 2, 7]) / 25
"""Probabilities, one of them 0, whose sum in our order is the next number above 1."""

sizes = st.integers(2, 41)
steps = st.one_of(
    st.just(0.0), st.floats(0.0, 1.0), st.floats(1.0, 1e308), st.floats(0.0, 1e-12), st.just(np.inf)
)


@st.composite
def distributions(draw_from: st.DrawFn, size: int) -> FloatArray:
    """Any distribution: pure, with holes, lopsided by many orders of magnitude, uniform."""
    weight = st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(1e-300, 1e-3), st.just(1.0))
    weights = np.array(draw_from(st.lists(weight, min_size=size, max_size=size)))
    weights[draw_from(st.integers(0, size - 1))] += 0.5
    return np.asarray(weights / math.fsum(weights))


@st.composite
def rows(draw_from: st.DrawFn) -> FloatArray:
    return draw_from(distributions(draw_from(sizes)))


@st.composite
def positions(draw_from: st.DrawFn) -> tuple[FloatArray, int]:
    """A policy row and its greedy action."""
    row = draw_from(rows())
    return row, draw_from(st.integers(0, len(row) - 1))


def assert_distribution(row: FloatArray) -> None:
    assert row.min() >= 0.0
    assert abs(math.fsum(row) - 1.0) <= 1e-12
