"""Sums in one fixed order, so that plain NumPy and compiled vector code agree to the last bit.

A row is cut into groups of eight lanes. Floating-point sums depend on their order; this one is
what eight-wide vector registers do naturally, and it is the same on every machine.
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.levels import FloatArray

LANES = 8


def _groups(row: FloatArray) -> FloatArray:
    padded = np.zeros(-(-len(row) // LANES) * LANES)
    padded[: len(row)] = row
    return padded.reshape(-1, LANES)


def lane_sum(row: FloatArray) -> float:
    """Sum of a row: lane by lane over the groups, then the eight lanes in halves."""
    lanes = np.zeros(LANES)
    for group in _groups(row):
        lanes = lanes + group
    fours = lanes[:4] + lanes[4:]
    twos = fours[:2] + fours[2:]
    return float(twos[0] + twos[1])


def lane_cumulative(row: FloatArray) -> FloatArray:
    """Running sums of a row: by doubling within a group, groups one after the other."""
    out, before = [], 0.0
    for group in _groups(row):
        v = group.copy()
        v[1::2] += v[0::2]
        v[[2, 3]] += v[1]
        v[[6, 7]] += v[5]
        v[4:] += v[3]
        out.append(v + before)
        before += v[7]
    return np.concatenate(out)[: len(row)]


def draw(policy: FloatArray, uniform: float) -> int:
    """The action that a uniform number in [0, 1) picks from a policy row."""
    return int(np.count_nonzero(lane_cumulative(policy) <= uniform))
