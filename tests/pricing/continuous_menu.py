"""The theory behind the menu: any saving, any payment, a concave value.

Virtual costs, ironing and a multiplier for the largest payment, after Mussa and Rosen and Myerson.
The menu on the grid of levels is held against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression
from tests.pricing.menu_economy import Menu

from noisemarket.game.levels import FloatArray

HALVINGS = 60
"""Steps of a bisection: below the spacing of floats for any interval of ordinary numbers."""


@dataclass(frozen=True, eq=False)
class ContinuousMenu(Menu):
    """``multiplier`` is what one more unit of ``payment_max`` would add to the curator's gain."""

    multiplier: float


def virtual_costs(types: FloatArray, probabilities: FloatArray) -> FloatArray:
    """What a saving of each type really costs: its own cost plus the rents of all cheaper types.

    ``v_m = theta_m + (Q_{m-1} / q_m) (theta_m - theta_{m-1})``: buying from type m lets the
    cheaper types, of total weight ``Q_{m-1}``, ask for that much more. Expected payments are
    ``privacy_weight / payment_value`` times the expectation of ``v_m s_m``.
    """
    cheaper = np.cumsum(probabilities) - probabilities
    return np.asarray(types + cheaper / probabilities * np.diff(types, prepend=0.0))


def continuous_menu(
    types: ArrayLike,
    probabilities: ArrayLike,
    value: Callable[[FloatArray], FloatArray],
    slope: Callable[[FloatArray], FloatArray],
    *,
    sigma_max: float,
    payment_max: float,
    payment_value: float,
    privacy_weight: float,
    price_weight: float,
) -> ContinuousMenu:
    """The best menu when any saving up to sigma_max and payment up to payment_max may be posted.

    ``value`` must be concave; ``slope`` is its derivative; both take arrays. Each type would take
    its own item rather than the next one down (local incentive compatibility) or nothing (the
    costliest type), both with equality, which fixes the payments and leaves the savings: each
    maximises the value less the ironed virtual cost. (Costlier types must not sell more than
    cheaper ones: where costs fall from a type to the next, both are treated as one type with their
    mean cost, which is isotonic regression.) The largest payment,
    ``p_1 = rate sum_m (theta_m - theta_{m-1}) s_m``, is linear in the savings, so a price ``eta``
    on it adds ``eta rate (theta_m - theta_{m-1}) / q_m`` to the unit cost of type m; bisection
    finds the ``eta`` at which the cap holds.
    """
    theta, q = np.array(types, dtype=float), np.array(probabilities, dtype=float)
    q /= q.sum()
    slopes = slope(np.linspace(0.0, sigma_max, 101)[1:])
    assert np.all(np.diff(slopes) <= 1e-9 * np.max(np.abs(slopes))), "the value is not concave"
    rate = privacy_weight / payment_value
    gaps = np.diff(theta, prepend=0.0)
    virtual = virtual_costs(theta, q)

    def savings_at(eta: float) -> FloatArray:
        unit_cost = rate * (price_weight * virtual + eta * gaps / q)
        return _best_savings(slope, isotonic_regression(unit_cost, weights=q).x, sigma_max)

    def largest_payment(savings: FloatArray) -> float:
        return float(rate * gaps @ savings)

    eta, savings = 0.0, savings_at(0.0)
    if largest_payment(savings) > payment_max:
        low, high = 0.0, 1.0
        while largest_payment(savings_at(high)) > payment_max:  # falls to 0: nobody sells
            low, high = high, 2.0 * high
        for _ in range(HALVINGS):
            eta = (low + high) / 2
            dear = largest_payment(savings_at(eta)) > payment_max
            low, high = (eta, high) if dear else (low, eta)
        # Where the value is linear, p_1 jumps at eta: every mix of both ends is as good there.
        over, under = savings_at(low), savings_at(high)
        top, bottom = largest_payment(over), largest_payment(under)
        savings = under + (payment_max - bottom) / (top - bottom) * (over - under)
        eta = high

    later_rents = np.append(np.cumsum((gaps * savings)[:0:-1])[::-1], 0.0)
    payments = np.minimum(rate * (theta * savings + later_rents), payment_max)
    gains = value(savings) - value(np.zeros_like(savings)) - price_weight * payments
    gain = float(q @ gains)
    return ContinuousMenu(theta, q, savings, payments, payment_value, privacy_weight, gain, eta)


def _best_savings(
    slope: Callable[[FloatArray], FloatArray], unit_cost: FloatArray, sigma_max: float
) -> FloatArray:
    """The saving at which a concave value stops growing faster than its cost, for each cost."""
    low, high = np.zeros_like(unit_cost), np.full_like(unit_cost, sigma_max)
    everything = slope(high) >= unit_cost
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        worth_more = slope(middle) > unit_cost
        low, high = np.where(worth_more, middle, low), np.where(worth_more, high, middle)
    return np.where(everything, sigma_max, low)
