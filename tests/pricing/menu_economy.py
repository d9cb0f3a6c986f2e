"""The economy that the tests of the menus share: values, populations, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.game.levels import SURFACES, FloatArray, IntArray, Levels
from noisemarket.game.sides import chosen_items
from noisemarket.pricing.pain_fl import best_menu

LEVELS = Levels()
PAYMENT_VALUE, PRIVACY_WEIGHT, PRICE_WEIGHT = 0.08, 2.5, (1 - 0.6) * 0.13
RATE = PRIVACY_WEIGHT / PAYMENT_VALUE
ECONOMY = {
    "payment_value": PAYMENT_VALUE,
    "privacy_weight": PRIVACY_WEIGHT,
    "price_weight": PRICE_WEIGHT,
}
CAPS = {"sigma_max": 0.6, "payment_max": 16.0}
UNCAPPED = {"sigma_max": 0.6, "payment_max": 1e4}


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


def value(saving: FloatArray) -> FloatArray:
    quality = SURFACES["printed"].quality(0.6 - np.asarray(saving), 1.0)
    return np.asarray(0.6 * 0.2 * quality)


def slope(saving: FloatArray) -> FloatArray:
    g1, g2, g3, g4, _ = SURFACES["printed"].gamma
    decay = np.exp(-g4 * (0.6 - np.asarray(saving)))
    steepness = g1 * np.exp(-g2) * g4 * decay / (g3 + decay) ** 2
    return np.asarray(0.6 * 0.2 * SURFACES["printed"].zeta[0] * steepness)


def parabola(
    top: float, bend: float
) -> tuple[Callable[..., FloatArray], Callable[..., FloatArray]]:
    """The value ``top s - bend s^2 / 2`` and its slope."""
    return (lambda s: top * s - bend * s**2 / 2), (lambda s: top - bend * s)


def random_population(seed: int, count: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.3, 4.8, count)), rng.dirichlet(np.full(count, 1.5)) * 0.9 + (
        0.1 / count
    )


def grid_menu(types: ArrayLike, probabilities: ArrayLike, savings: ArrayLike, values: ArrayLike,
              payments: ArrayLike, **economy: float) -> Menu:  # fmt: skip
    """The best menu on a grid that may be given as lists."""
    given = [np.asarray(one, float) for one in (types, probabilities, savings, values, payments)]
    saving, payment, gain = best_menu(*given, **economy)
    shares = given[1] / given[1].sum()
    items = given[2][saving], given[4][payment]
    weights = economy["payment_value"], economy["privacy_weight"]
    return Menu(given[0], shares, *items, *weights, gain)


def default_grid_menu(types: FloatArray, probabilities: FloatArray) -> Menu:
    values = value(LEVELS.savings)
    return grid_menu(types, probabilities, LEVELS.savings, values, LEVELS.payments, **ECONOMY)


def assert_no_type_regrets(menu: Menu, allowance: float) -> None:
    """IR and IC, spelled out pair by pair."""
    for m, theta in enumerate(menu.types):
        own = PAYMENT_VALUE * menu.payments[m] - PRIVACY_WEIGHT * theta * menu.savings[m]
        assert own >= -1e-9
        for i in range(len(menu.types)):
            other = PAYMENT_VALUE * menu.payments[i] - PRIVACY_WEIGHT * theta * menu.savings[i]
            assert other <= own + allowance, (m, i)
    assert np.all(np.diff(menu.savings) <= 1e-12)
    assert np.all(menu.payments >= 0)


def choose(menu: Menu, costs: FloatArray) -> IntArray:
    """The item that owners of these costs take."""
    weights = menu.payment_value, menu.privacy_weight
    return chosen_items(menu.savings, menu.payments, costs, np.inf, *weights)


def taken_savings(menu: Menu, costs: FloatArray) -> FloatArray:
    chosen = choose(menu, costs)
    return np.where(chosen < 0, 0.0, menu.savings[chosen])


# --- the continuous menu ------------------------------------------------------------------------
