"""The rules' inner steps on one row of a pair's tables: how to act and how to learn.

The same arithmetic as the plain files of the rules, with three savings that change no trajectory:
the best action of a row and its value are remembered and searched for again only when that value
falls; sums run in vector registers; and a row that has become pure is not touched while its best
action stays (the sum of its policies is brought up to date when it moves again).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from noisemarket.pricing.compiled.arguments import CLIMBING, EXPLORING, FIXED
from noisemarket.pricing.compiled.simd import (
    GROUP,
    POLICY,
    TOTAL,
    add_and_gain,
    first_equal,
    highest,
    pick,
    set_probability,
    set_value,
    take_from_all,
)
from noisemarket.pricing.lanes import LANES

inlined = njit(nogil=True, error_model="numpy", forceinline=True)
"""Compiles a function into its callers: a call with this many arguments costs more than it does."""

MOVING = -1
"""``settled`` of a row that is not pure; else the count at which it became so."""


@inlined
def cell(at: int, action: int) -> int:
    """Index of an action's Q-value in its row."""
    return at + (action // LANES) * GROUP + action % LANES


@inlined
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
    if family == CLIMBING and settled == MOVING:
        return pick(table, at, groups, uniform)
    if family == EXPLORING and uniform < exploration:
        return int(min(uniform / exploration * actions, actions - 1))
    return best


@inlined
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
    old = table[cell(at, action)]
    value = old + learning_rate * (target - old)
    set_value(table, at, action, value)
    was_best = best_action[row]
    best, top = was_best, best_value[row]
    if action == best:
        top = value
        if value < old:
            top = highest(table, at, groups)
            best = first_equal(table, at, groups, top)
    elif value > top or (value == top and action < best):
        best, top = action, value
    best_action[row] = best
    best_value[row] = top
    if family == EXPLORING:
        return

    visits = count[row] + 1
    count[row] = visits
    since = settled[row]
    if since != MOVING:
        if best == was_best:
            return
        _catch_up(table, at, groups, visits - 1 - since)
        settled[row] = MOVING
    win_share, lose_share = win_step / (actions - 1), lose_step / (actions - 1)
    gain = add_and_gain(table, at, groups, float(visits), top)
    set_probability(table, at, best, 0.0)
    rest = take_from_all(table, at, groups, win_share if gain > 0.0 else lose_share)
    set_probability(table, at, best, max(1.0 - rest, 0.0))
    if rest == 0.0:
        settled[row] = visits


@inlined
def _catch_up(table: Any, at: int, groups: int, visits: int) -> None:
    """Add a pure row's policy to its sum for the visits at which it was left untouched."""
    for group in range(groups):
        for lane in range(at + group * GROUP, at + group * GROUP + LANES):
            table[lane + TOTAL] += visits * table[lane + POLICY]
