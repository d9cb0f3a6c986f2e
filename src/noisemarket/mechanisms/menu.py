"""The screening menu: the best contracts for a curator that knows only how costs are distributed.

Owners come in types ``theta_1 < ... < theta_M`` (reservation privacy costs) with probabilities
``q_m``. Whoever gives up noise ``s`` for a payment ``p`` gets ``payment_value p - privacy_weight
theta s``; the curator gets ``value(s) - price_weight p`` and cannot see theta, so it posts one
menu of (saving, payment) items and lets every owner pick, in the style of Pain-FL.

``MenuProblem`` finds the best menu on the levels of the game, exactly, for a value of any shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.game.sides import SLACK

CHUNK = 1 << 14
"""Owners that ``Menu.choose`` handles at a time: its memory does not grow with the population."""


@dataclass(frozen=True, eq=False)
class Menu:
    """One item for each type, cheapest type first: savings and payments never increase.

    ``curator_gain`` is the curator's expected gain per owner over no trade when each type takes
    its own item. A type that is not served has the empty item (0, 0).
    """

    types: FloatArray
    probabilities: FloatArray
    savings: FloatArray
    payments: FloatArray
    payment_value: float
    privacy_weight: float
    curator_gain: float

    def __post_init__(self) -> None:
        for array in (self.types, self.probabilities, self.savings, self.payments):
            array.setflags(write=False)

    def choose(self, reservation_cost: ArrayLike, most: ArrayLike = np.inf) -> NDArray[np.intp]:
        """The item that each owner takes, -1 for none; an owner need not be one of the types.

        Everyone takes what it likes best at its own cost; up to a rounding allowance, ties go to
        the larger saving and a sale at no gain is made. The empty item counts as taking none; of
        equal items the first is meant. ``most`` is the largest saving that each would sell at all.
        """
        cost = np.asarray(reservation_cost, dtype=float)
        if not np.all(np.isfinite(cost)):
            raise BadInput("reservation_cost", reservation_cost, "give finite numbers.")
        distinct, first = np.unique(self.savings, return_index=True)
        sold = first[distinct > 0][::-1]  # larger savings first: argmax below takes the first
        loss = self.privacy_weight * np.append(self.savings[sold], 0.0)
        income = self.payment_value * np.append(self.payments[sold], 0.0)
        index = np.append(sold, -1)
        flat, limit = cost.reshape(-1), np.broadcast_to(most, cost.shape).reshape(-1) + SLACK
        given = np.append(self.savings[sold], -np.inf)  # to take nothing is open to all
        chosen = np.empty(flat.size, dtype=np.intp)
        for start in range(0, flat.size, CHUNK):
            some = slice(start, start + CHUNK)
            utility = income - flat[some, None] * loss
            utility[given > limit[some, None]] = -np.inf
            good = utility >= utility.max(axis=1, keepdims=True) - SLACK
            chosen[start : start + CHUNK] = index[np.argmax(good, axis=1)]
        return chosen.reshape(cost.shape)


def types_from_sample(reservation_costs: ArrayLike, count: int) -> tuple[FloatArray, FloatArray]:
    """Types and probabilities from a sample, or an even grid of quantiles, of reservation costs.

    The sample is cut into ``count`` bins of equal weight and each stands for its largest cost, so
    that an item made for a type is no loss to anyone in the bin. Equal types are merged.
    """
    costs = np.sort(np.asarray(reservation_costs, dtype=float), axis=None)
    if costs.size == 0 or not np.all(np.isfinite(costs)) or costs[0] < 0:
        raise BadInput("reservation_costs", reservation_costs, "give finite numbers, 0 or more.")
    if count < 1:
        raise BadInput("count", count, "give at least 1.")
    last_of_bin = [-(-m * costs.size // count) - 1 for m in range(1, count + 1)]
    types, weight = np.unique(costs[last_of_bin], return_counts=True)
    return types, weight / count


@dataclass(frozen=True, eq=False)
class MenuProblem:
    """What a best menu is sought for, checked.

    Args:
        types: the owners' reservation costs, rising.
        probabilities: how likely each of them is.
        savings: evenly spaced from 0.
        values: the curator's value at each saving, of any shape.
        payments: evenly spaced from 0.
        payment_value: what a unit of money is worth to an owner.
        privacy_weight: what a unit of privacy loss is worth to an owner.
        price_weight: what a unit of money is worth to the curator.

    Raises:
        BadInput: there is no menu for these numbers; names the field.
    """

    types: FloatArray
    probabilities: FloatArray
    savings: FloatArray
    values: FloatArray
    payments: FloatArray
    payment_value: float
    privacy_weight: float
    price_weight: float

    def __post_init__(self) -> None:
        theta, q = _population(self.types, self.probabilities)
        _check_number("payment_value", self.payment_value, positive=True)
        _check_number("privacy_weight", self.privacy_weight, positive=True)
        _check_number("price_weight", self.price_weight, positive=False)
        savings, payments = _even("savings", self.savings), _even("payments", self.payments)
        if savings[-1] == 0:
            raise BadInput("savings", self.savings, "give increasing levels.")
        values = np.asarray(self.values, dtype=float)
        if values.shape != savings.shape or not np.all(np.isfinite(values)):
            raise BadInput("values", self.values, "give one finite value for each saving.")
        names = ("types", "probabilities", "savings", "values", "payments")
        for name, checked in zip(names, (theta, q, savings, values, payments), strict=True):
            object.__setattr__(self, name, checked)

    def solve(self) -> Menu:
        """The best of all menus whose items lie on the grid of savings and payments.

        Rounding the best continuous menu to the grid would make some types prefer another item;
        here every type takes its own, as ``Menu.choose`` decides it, and no other set of grid
        contracts earns more from these types.

        Dynamic programming from the costliest type up. Raising the saving by ``i`` steps for ``k``
        more steps of payment is taken by the types up to a break-even cost that depends on (i, k)
        only. So each (i, k) is possible between exactly one pair of neighbours, m and m + 1, and
        there it is a shift of the table over (saving, payment). Beyond type M stands one that takes
        nothing.
        """
        theta, q = self.types, self.probabilities
        saving_step, payment_step = _step(self.savings), _step(self.payments)
        gains = (self.values - self.values[0])[:, None] - self.price_weight * self.payments
        gains[0, 1:] = -np.inf  # paying for nothing
        up, more = np.indices(gains.shape)[:, 1:, :].reshape(2, -1)
        income = self.payment_value * payment_step * more + SLACK
        takers = np.searchsorted(
            theta, income / (self.privacy_weight * saving_step * up), side="right"
        )

        total = np.full(gains.shape, -np.inf)
        total[0, 0] = 0.0
        rows, columns = gains.shape
        next_items = np.empty((theta.size, gains.size), dtype=np.intp)
        for m in range(theta.size, 0, -1):
            best, source = total.copy(), np.arange(gains.size).reshape(gains.shape)
            item = source.copy()
            for i, k in zip(up[takers == m], more[takers == m], strict=True):
                offer = total[: rows - i, : columns - k]
                better = offer > best[i:, k:]
                best[i:, k:][better] = offer[better]
                source[i:, k:][better] = item[: rows - i, : columns - k][better]
            next_items[m - 1] = source.reshape(-1)
            total = q[m - 1] * gains + best

        items = [int(np.argmax(total))]
        for following in next_items[:-1]:
            items.append(int(following[items[-1]]))
        chosen_saving, chosen_payment = np.unravel_index(items, gains.shape)
        return Menu(
            theta,
            q,
            self.savings[chosen_saving],
            self.payments[chosen_payment],
            self.payment_value,
            self.privacy_weight,
            curator_gain=float(q @ gains[chosen_saving, chosen_payment]),
        )


def _population(types: ArrayLike, probabilities: ArrayLike) -> tuple[FloatArray, FloatArray]:
    theta, q = np.array(types, dtype=float), np.array(probabilities, dtype=float)
    if theta.ndim != 1 or theta.size == 0 or not np.all(np.isfinite(theta)) or theta[0] < 0:
        raise BadInput("types", types, "give a list of finite costs, 0 or more.")
    if np.any(np.diff(theta) <= 0):
        raise BadInput("types", types, "sort them and merge equal ones.")
    if q.shape != theta.shape or not np.all(q > 0) or abs(q.sum() - 1.0) > 1e-9:
        remedy = "give one probability above 0 per type, with sum 1."
        raise BadInput("probabilities", probabilities, remedy)
    return theta, q / q.sum()


def _check_number(field: str, number: float, *, positive: bool) -> None:
    if not np.isfinite(number) or number < 0 or (positive and number == 0):
        remedy = "give a finite number above 0." if positive else "give a finite number, 0 or more."
        raise BadInput(field, number, remedy)


def _step(grid: FloatArray) -> float:
    return float(grid[-1]) / (grid.size - 1)


def _even(field: str, points: FloatArray) -> FloatArray:
    """The grid; shifts of the table stand for differences only if its steps are equal."""
    if points.ndim != 1 or points.size < 2 or not np.all(np.isfinite(points)):
        raise BadInput(field, points, "give a list of two or more finite levels.")
    step = _step(points)
    even = step * np.arange(points.size)
    if step < 0 or not np.allclose(points, even, rtol=0, atol=1e-9 * abs(float(points[-1]))):
        raise BadInput(field, points, "give levels that start at 0 and rise in equal steps.")
    return points
