"""What the compiled loop takes and gives, in four groups that Numba reads as named tuples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray

CLIMBING, EXPLORING, FIXED = 0, 1, 2
"""The families of rules: policy hill-climbers, epsilon-greedy learners, fixed policies."""

PROPOSALS, QUOTES, SAVINGS, PAYMENTS, DEALS = range(5)
"""Columns of ``Batch.counts``."""


class GameArrays(NamedTuple):
    """The games of some pairs. Tables are ``(pairs, phases, savings, payments)``.

    ``starts`` are the first iterations of the phases and, last, the number of iterations. ``keys``
    name the pairs' streams of random numbers. First Q-values are ``(pairs, states, actions)``.
    """

    keys: KeyArray
    starts: IntArray
    owner_rewards: FloatArray
    curator_rewards: FloatArray
    agreed: BoolArray
    owner_first: FloatArray
    curator_first: FloatArray


class LoopSettings(NamedTuple):
    """The numbers of a run: the family of the rule and its settings, and how to keep record.

    A trace has a point every ``trace_every`` iterations; deals are read from the last ``window``.
    """

    family: int
    sees_proposal: bool
    seed: np.uint64
    discount: float
    learning_rate: float
    step_start: float
    step_slowing: float
    lose_ratio: float
    exploration: float
    trace_every: int
    window: int


class Batch(NamedTuple):
    """What a batch of pairs played.

    ``counts`` are sums of level numbers over all pairs, a row per block of iterations: proposals,
    quotes, then the savings, payments and number of the deals signed. ``payoffs`` are the sums of
    the owner's and the curator's rewards. Per pair: ``deals`` (usual saving and payment of late, 0
    and 0 for none), ``last`` (saving and payment played last) and both final policies.
    """

    counts: IntArray
    payoffs: FloatArray
    deals: IntArray
    last: IntArray
    owner_policies: FloatArray
    curator_policies: FloatArray


class Scratch(NamedTuple):
    """Memory of the pair that is being played; nothing is read from it afterwards.

    ``tables`` holds both players' rows, laid out as ``simd.py`` says. Per row, the owner's first:
    ``rows`` (best action, visits, when it became pure) and ``best_values``. ``seen`` counts the
    outcomes of the last iterations. ``cancelled`` has one value, which another thread sets to True
    to end the play: the batch is then worth nothing.
    """

    tables: FloatArray
    rows: IntArray
    best_values: FloatArray
    seen: IntArray
    cancelled: BoolArray
