"""What no portfolio can exceed, however it is chosen: the proof that one which was found is good.

Quality follows from three sums over the owners (``joint.py``): of weights ``W``, of ``w^2 sigma^2``
and of ``w^2``. It grows with ``W`` and falls with the other two. So the plane of (``W``, money) is
cut into cells. In a cell, quality is at most that of its largest ``W`` with the least of the other
two sums that anybody could have who reaches its smallest ``W`` within its money. These least sums
are bounded by Lagrange's method: for any prices of weight and of money, the sum over the owners of
the best that each could do by itself. Cells that might beat what is known are cut again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import FloatArray

_PRICES, _MONEY_CUTS, _WEIGHT_CUTS, _ROUNDS, _MOST_CELLS = 24, 24, 48, 8, 20_000


@dataclass(frozen=True, eq=False)
class _Duals:
    """Lower bounds ``base + weight W - money P`` of a sum, one for each pair of prices."""

    base: FloatArray
    weight: FloatArray
    money: FloatArray

    @classmethod
    def of(cls, sums: FloatArray, weights: FloatArray, money: FloatArray) -> _Duals:
        """For ``sums``, ``weights`` and ``money`` of each owner and level; infinite money: not for
        sale. Any prices give a bound, these cover all that could matter."""
        rise = weights - weights[:, :1]
        sold = (rise > 0.0) & np.isfinite(money) & (money > 0.0)
        if not sold.any():
            return cls(np.array([_sum_of_least(sums, money)]), np.zeros(1), np.zeros(1))
        slopes = np.abs((sums - sums[:, :1])[sold] / rise[sold])
        top, per_money = float(slopes.max()), float((rise[sold] / money[sold]).max())
        prices = np.geomspace(max(0.5 * float(slopes.min()), 1e-6 * top), 4.0 * top, _PRICES)
        pairs = [(0.0, 0.0)]
        for price in prices.tolist():
            pairs += [(price, price * dear) for dear in _money_prices(per_money)]
        costs = np.where(np.isfinite(money), money, 0.0)
        base = [
            _sum_of_least(sums - price * weights + dear * costs, money) for price, dear in pairs
        ]
        return cls(np.array(base), *np.array(pairs).T)

    @classmethod
    def of_weight(cls, weights: FloatArray, money: FloatArray) -> _Duals:
        """For minus the weight itself, by money alone."""
        rise = weights - weights[:, :1]
        sold = (rise > 0.0) & np.isfinite(money) & (money > 0.0)
        per_money = float((rise[sold] / money[sold]).max()) if sold.any() else 0.0
        prices, costs = _money_prices(per_money), np.where(np.isfinite(money), money, 0.0)
        base = [_sum_of_least(dear * costs - weights, money) for dear in prices]
        return cls(np.array(base), np.zeros(len(base)), np.array(prices))

    def least(self, weight: FloatArray, money: FloatArray) -> FloatArray:
        """The least sum of whoever reaches a weight within some money."""
        best = np.full(len(weight), -np.inf)
        for base, first, second in zip(self.base, self.weight, self.money, strict=True):
            np.maximum(best, base + first * weight - second * money, out=best)
        return best


def _money_prices(per_money: float) -> list[float]:
    """Prices of money from none to more than any step is worth."""
    return [0.0, *(per_money * np.geomspace(1e-4, 2.0, _PRICES)).tolist()]


def _sum_of_least(values: FloatArray, money: FloatArray) -> float:
    """The sum over the owners of the least value of all that is for sale."""
    return float(np.where(np.isfinite(money), values, np.inf).min(axis=1).sum())


def most_value(
    terms: FloatArray,
    money: FloatArray,
    room: float,
    value: Callable[[FloatArray], FloatArray],
    known: float,
) -> float:
    """The most that any portfolio can be worth, less what it costs.

    Args:
        terms: what each owner adds to the three sums at each level, ``(owners, levels, 3)``.
        money: what it costs, as it counts in the value; infinite where it is not for sale, and 0 at
            level 0.
        room: the most that may be spent.
        value: what sums are worth, money apart.
        known: a value that is reached.
    """
    weights = terms[:, :, 0]
    noisy, square = (_Duals.of(terms[:, :, one], weights, money) for one in (1, 2))
    reach = _Duals.of_weight(weights, money)
    every = np.where(np.isfinite(money), weights, -np.inf).max(axis=1).sum()
    all_money = float(np.where(np.isfinite(money), money, 0.0).max(axis=1).sum())
    least = terms[:, 0].sum(axis=0)
    # What is spent beyond the worth of the best conceivable sums cannot pay.
    best_sums = np.array([every, *np.where(np.isfinite(money)[..., None], terms, np.inf)
                          .min(axis=1).sum(axis=0)[1:]])  # fmt: skip
    worth = float(value(best_sums[None])[0]) - known
    spent = min(room, all_money, max(worth, 0.0))
    cells = _grid(np.geomspace(least[0], max(every, least[0]), _WEIGHT_CUTS + 1),
                  np.linspace(0.0, spent, _MONEY_CUTS + 1))  # fmt: skip
    bounds = np.full(len(cells), np.inf)
    for _ in range(_ROUNDS):
        low, high, from_money, to_money = cells.T
        reached = -reach.least(np.zeros(len(cells)), to_money)
        sums = np.column_stack([
            np.minimum(high, np.maximum(reached, least[0])),
            np.maximum(noisy.least(low, to_money), 1e-300),
            np.maximum(square.least(low, to_money), 1e-300),
        ])  # fmt: skip
        bounds = np.where(low <= reached * (1 + 1e-12), value(sums) - from_money, -np.inf)
        open_ones = bounds > known + 1e-9 * abs(known)
        if not open_ones.any():
            return known
        if 4 * int(open_ones.sum()) > _MOST_CELLS:
            break
        cells = _halved(cells[open_ones])
    return max(known, float(bounds.max()))


def _grid(weights: FloatArray, money: FloatArray) -> FloatArray:
    """Cells as rows: smallest and largest weight, least and most money."""
    low, first = (one.reshape(-1) for one in np.meshgrid(weights[:-1], money[:-1], indexing="ij"))
    high, last = (one.reshape(-1) for one in np.meshgrid(weights[1:], money[1:], indexing="ij"))
    return np.column_stack([low, high, first, last])


def _halved(cells: FloatArray) -> FloatArray:
    """Each cell cut in four."""
    low, high, first, last = cells.T
    weight, money = (low + high) / 2.0, (first + last) / 2.0
    return np.concatenate([
        np.column_stack([low, weight, first, money]), np.column_stack([weight, high, first, money]),
        np.column_stack([low, weight, money, last]), np.column_stack([weight, high, money, last]),
    ])  # fmt: skip
