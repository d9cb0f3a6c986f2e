"""The rules' inner steps on one row of a pair's tables: how to act and how to learn.

The same arithmetic as the plain files next door, with three savings that change no trajectory:
the best action of a row and its value are remembered and searched for again only when that value
falls; sums run in vector registers; and a row that has become pure is not touched while its best
action stays (its average policy then has a closed form, applied when it moves again).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from noisemarket.learning.compiled.simd import (
    AVERAGE,
    GROUP,
    LANES,
    POLICY,
    average_gain,
    first_equal,
    highest,
    pick,
    set_probability,
    take_from_others,
)

CLIMBING, EXPLORING, FIXED = 0, 1, 2
"""The families of rules: policy hill-climbers, epsilon-greedy value learners, and the unmoved."""

MOVING = -1
"""``settled`` of a row that is not pure; else the count at which it became so."""


@njit(nogil=True, error_model="numpy")
def place(at: int, action: int) -> int:
    """Index of an action's Q-value in its row."""
    return at + (action // LANES) * GROUP + action % LANES


@njit(nogil=True, error_model="numpy")
def act(
    family: int,
    table: Any,
    at: int,
    groups: int,
    actions: int,
    best: int,
    settled: int,
    uniform: float,
    exploration: float,
) -> int:
    """The action that a player takes in the state of this row."""
    if family == CLIMBING:
        if settled != MOVING:
            return best
        return pick(table, at, groups, uniform)
    if family == EXPLORING and uniform < exploration:
        return int(min(uniform / exploration * actions, actions - 1))
    return best


@njit(nogil=True, error_model="numpy")
def learn(
    family: int,
    table: Any,
    best_action: Any,
    best_value: Any,
    count: Any,
    settled: Any,
    row: int,
    at: int,
    groups: int,
    actions: int,
    action: int,
    target: float,
    learning_rate: float,
    win_step: float,
    lose_step: float,
) -> None:
    """Take in that ``action`` in the state of this row is worth ``target``."""
    if family == FIXED:
        return
    q_at = place(at, action)
    old = table[q_at]
    value = old + learning_rate * (target - old)
    was_best = best_action[row]
    best, top = was_best, best_value[row]
    if action == best:
        top = value
        if value < old:
            top = highest(table, at, groups, action, value)
            best = first_equal(table, at, groups, action, value, top)
    elif value > top or (value == top and action < best):
        best, top = action, value
    best_action[row] = best
    best_value[row] = top
    if family == EXPLORING:
        table[q_at] = value
        return

    visits = count[row] + 1
    count[row] = visits
    since = settled[row]
    if since != MOVING:
        if best == was_best:
            table[q_at] = value
            return
        _catch_up(table, at, groups, since, visits - 1)
        settled[row] = MOVING
    gain = average_gain(table, at, groups, 1.0 / visits, action, value, top)
    table[q_at] = value
    step = win_step if gain > 0.0 else lose_step
    rest = take_from_others(table, at, groups, step / (actions - 1), best)
    set_probability(table, at, best, 1.0 - rest)
    if rest == 0.0:
        settled[row] = visits


@njit(nogil=True, error_model="numpy")
def _catch_up(table: Any, at: int, groups: int, since: int, visits: int) -> None:
    """The average policy after a pure row was visited ``visits - since`` times unchanged."""
    weight = (visits - since) / visits
    for group in range(groups):
        for lane in range(at + group * GROUP, at + group * GROUP + LANES):
            table[lane + AVERAGE] += (table[lane + POLICY] - table[lane + AVERAGE]) * weight
