"""Every owner's steps up in saving, in the order of what they bring for their money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.levels import FloatArray, IntArray, KeyArray


@dataclass(frozen=True)
class RankedSteps:
    """Steps from one level to the next worth taking, best first; an owner's own are in order.

    ``start`` is the level of each owner that costs nothing.
    """

    start: IntArray
    owner: IntArray
    old: IntArray
    new: IntArray
    price: FloatArray


def steps_by_worth(worth: FloatArray, price: FloatArray, keys: KeyArray) -> RankedSteps:
    """The steps along the upper hull of (price, worth) of each owner, all owners together.

    Args:
        worth: of each owner and level.
        price: the same; infinite where it is not for sale.
        keys: settle ties, so that nothing depends on the order of the owners.
    """
    rows = np.arange(len(worth))
    now = start = np.argmax(np.where(price == 0.0, worth, -np.inf), axis=1)
    taken: list[tuple[NDArray[Any], ...]] = []
    while True:
        more = worth - worth[rows, now][:, None]
        extra = price - price[rows, now][:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = np.where((extra > 0.0) & (more > 0.0), more / extra, 0.0)
        best = np.argmax(slope, axis=1)
        rate = slope[rows, best]
        going = np.flatnonzero(rate > 0.0)
        if not len(going):
            break
        step = (going, now[going], best[going], extra[going, best[going]], rate[going])
        taken.append(step)
        now = now.copy()
        now[going] = best[going]
    if not taken:
        nothing = np.zeros(0, dtype=np.int64)
        return RankedSteps(start, nothing, nothing, nothing, np.zeros(0))
    owner, old, new, cost, rate = (np.concatenate(column) for column in zip(*taken, strict=True))
    turn = np.repeat(np.arange(len(taken)), [len(step[0]) for step in taken])
    order = np.lexsort((turn, keys[owner], -rate))
    return RankedSteps(start, owner[order], old[order], new[order], cost[order])
