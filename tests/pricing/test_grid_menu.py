"""The menu on the levels of the game against brute force, and how owners choose from it."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pricing.continuous_menu import continuous_menu
from tests.pricing.menu_economy import (
    CAPS,
    ECONOMY,
    LEVELS,
    PAYMENT_VALUE,
    PRICE_WEIGHT,
    PRIVACY_WEIGHT,
    RATE,
    Menu,
    assert_no_type_regrets,
    choose,
    default_grid_menu,
    grid_menu,
    random_population,
    slope,
    taken_savings,
    value,
)

from noisemarket.game.levels import FloatArray
from noisemarket.pricing.pain_fl import types_from_sample


def free_choice_gain(
    items: list[tuple[float, float]],
    gains: list[float],
    types: FloatArray,
    probabilities: FloatArray,
) -> float:
    """What a set of items earns when every type takes its best one, larger savings on ties."""
    earned = 0.0
    for theta, weight in zip(types, probabilities, strict=True):
        options = [(0.0, 0.0, 0.0)]
        for (saving, payment), gain in zip(items, gains, strict=True):
            options.append(
                (PAYMENT_VALUE * payment - PRIVACY_WEIGHT * theta * saving, saving, gain)
            )
        top = max(utility for utility, _, _ in options)
        earned += weight * max((s, g) for u, s, g in options if u >= top - 1e-9)[1]
    return earned


def random_values(seed: int, size: int) -> FloatArray:
    """Any shape: measured surfaces need be neither concave nor increasing."""
    rng = np.random.default_rng(1000 + seed)
    return np.cumsum(rng.uniform(-0.3, 1.2, size))


def tied_population(seed: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Types exactly at break-even costs of the coarse grid below: ties, blurred by rounding."""
    steps = {k / i for i in range(1, 4) for k in range(1, 6)}
    rng = np.random.default_rng(seed)
    types = np.sort(rng.choice(sorted(steps), count, replace=False)) * (16 / 5) / (RATE * 0.1)
    return types, random_population(seed, count)[1]


@pytest.mark.parametrize("population", [random_population, tied_population])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_no_set_of_grid_contracts_earns_more(
    population: Callable[[int, int], tuple[FloatArray, FloatArray]], seed: int, count: int
) -> None:
    savings, payments = np.arange(4) * 0.1, np.arange(6) * 16 / 5
    values, (types, probabilities) = random_values(seed, 4), population(seed, count)
    items = [(s, p) for s in savings[1:] for p in payments[1:]]
    gains = {
        (s, p): v - values[0] - PRICE_WEIGHT * p
        for s, v in zip(savings, values, strict=True)
        for p in payments
    }
    best = max(
        free_choice_gain(list(chosen), [gains[item] for item in chosen], types, probabilities)
        for size in range(count + 1)
        for chosen in combinations(items, size)
    )
    menu = grid_menu(types, probabilities, savings, values, payments, **ECONOMY)
    assert menu.curator_gain == pytest.approx(best, abs=1e-12)
    assert_no_type_regrets(menu, 1e-9)
    np.testing.assert_array_equal(taken_savings(menu, types), menu.savings)


def monotone_savings(levels: int, count: int) -> list[tuple[int, ...]]:
    return [c[::-1] for c in combinations_with_replacement(range(levels), count)]


def binding_payments(types: FloatArray, savings: FloatArray) -> FloatArray:
    """Payments from the costliest type up, each leaving the next cheaper one just indifferent."""
    payments = np.empty_like(savings)
    payments[-1] = RATE * types[-1] * savings[-1]
    for m in range(len(types) - 2, -1, -1):
        payments[m] = payments[m + 1] + RATE * types[m] * (savings[m] - savings[m + 1])
    return payments


@pytest.mark.parametrize("seed", range(4))
def test_grid_menu_lies_between_rounding_and_free_payments(seed: int) -> None:
    """Over all monotone savings: rounding payments up never earns more once owners choose freely,
    payments off the grid never less, and on fine payment grids the difference vanishes.
    """
    savings, values = np.arange(5) * 0.1, random_values(seed, 5)
    types, probabilities = random_population(seed, 3)
    rounded, relaxed = 0.0, 0.0
    for indices in monotone_savings(5, 3):
        taken = savings[list(indices)]
        payments = binding_payments(types, taken)
        if payments[0] <= 16:
            gains = values[list(indices)] - values[0]
            relaxed = max(relaxed, float(probabilities @ (gains - PRICE_WEIGHT * payments)))
            steps = np.ceil(payments / 0.5 - 1e-9) * 0.5
            items = list(zip(taken, steps, strict=True))
            assigned = list(gains - PRICE_WEIGHT * steps)
            rounded = max(rounded, free_choice_gain(items, assigned, types, probabilities))
    coarse = grid_menu(types, probabilities, savings, values, LEVELS.payments, **ECONOMY)
    fine_payments = np.arange(1601) * 0.01
    fine = grid_menu(types, probabilities, savings, values, fine_payments, **ECONOMY)
    assert rounded - 1e-12 <= coarse.curator_gain <= fine.curator_gain + 1e-12
    assert fine.curator_gain <= relaxed + 1e-9
    assert fine.curator_gain == pytest.approx(relaxed, abs=PRICE_WEIGHT * 3 * 0.01)


@pytest.mark.parametrize("count", [1, 2, 5, 16, 64])
def test_default_economy_on_the_grid(count: int) -> None:
    types, probabilities = types_from_sample(1.2 * np.linspace(0.5, 4, 4001), count)
    menu = default_grid_menu(types, probabilities)
    bound = continuous_menu(types, probabilities, value, slope, **CAPS, **ECONOMY)
    assert_no_type_regrets(menu, 1e-9)
    assert np.all(np.isin(menu.savings, LEVELS.savings))
    assert np.all(np.isin(menu.payments, LEVELS.payments))
    assert 0.9 * bound.curator_gain < menu.curator_gain <= bound.curator_gain + 1e-9
    assert bound.multiplier > 0  # 16 is a binding cap here
    np.testing.assert_array_equal(taken_savings(menu, types), menu.savings)


def test_one_type_on_the_grid_is_enumeration() -> None:
    menu = default_grid_menu(np.array([1.3]), np.array([1.0]))
    best = max(
        (v - value(0.0) - PRICE_WEIGHT * p, s, p)
        for s, v in zip(LEVELS.savings, value(LEVELS.savings), strict=True)
        for p in LEVELS.payments
        if PAYMENT_VALUE * p >= PRIVACY_WEIGHT * 1.3 * s - 1e-9
    )
    assert (menu.curator_gain, menu.savings[0], menu.payments[0]) == pytest.approx(best)


def test_worthless_savings_are_not_bought_on_the_grid() -> None:
    types, probabilities = random_population(3, 4)
    flat = np.zeros(13)
    menu = grid_menu(types, probabilities, LEVELS.savings, flat, LEVELS.payments, **ECONOMY)
    np.testing.assert_array_equal(menu.savings, 0.0)
    np.testing.assert_array_equal(menu.payments, 0.0)
    assert menu.curator_gain == 0.0


def test_the_grid_menu_is_fast() -> None:
    types, probabilities = types_from_sample(np.linspace(0.6, 4.8, 4001), 64)
    default_grid_menu(types, probabilities)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        default_grid_menu(types, probabilities)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.5


# --- owners choosing ----------------------------------------------------------------------------


def hand_made_menu() -> Menu:
    savings, payments = np.array([0.4, 0.2, 0.0]), np.array([10.0, 7.0, 0.0])
    return Menu(np.array([0.5, 1.0, 4.0]), np.full(3, 1 / 3), savings, payments, 1.0, 10.0, 0.0)


def test_owners_take_their_best_item_and_larger_savings_on_ties() -> None:
    # Item 0 beats 1 up to cost 1.5 (10 - 4c >= 7 - 2c); item 1 beats nothing up to 3.5.
    costs = np.array([0.0, 1.5, 1.5 + 1e-6, 2.0, 3.5, 3.5 + 1e-6, 100.0])
    np.testing.assert_array_equal(choose(hand_made_menu(), costs), [0, 0, 1, 1, 1, -1, -1])
    assert choose(hand_made_menu(), np.zeros(0)).shape == (0,)


def test_a_million_owners_choose_in_bounded_memory() -> None:
    types, probabilities = types_from_sample(np.linspace(0.6, 4.8, 4001), 64)
    menu = continuous_menu(types, probabilities, value, slope, **CAPS, **ECONOMY)
    costs = np.random.default_rng(0).uniform(0.5, 6.0, 1_000_000)
    tracemalloc.start()
    chosen = choose(menu, costs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64e6  # 64 items for everyone at once would be 512 MB
    some = np.random.default_rng(1).integers(0, costs.size, 200)
    np.testing.assert_array_equal(chosen[some], choose(menu, costs[some]))
    utility = PAYMENT_VALUE * menu.payments - PRIVACY_WEIGHT * costs[some, None] * menu.savings
    got = np.where(chosen[some] < 0, 0.0, utility[np.arange(200), chosen[some]])
    np.testing.assert_allclose(got, np.maximum(utility.max(axis=1), 0.0), atol=1e-8)


# --- types --------------------------------------------------------------------------------------


def test_types_are_upper_quantiles() -> None:
    types, probabilities = types_from_sample(np.array([4, 1, 3, 2, 6, 5]), 3)
    np.testing.assert_array_equal(types, [2, 4, 6])
    np.testing.assert_allclose(probabilities, 1 / 3)


def test_equal_types_are_merged() -> None:
    types, probabilities = types_from_sample(np.array([1, 1, 1, 2]), 4)
    np.testing.assert_array_equal(types, [1, 2])
    np.testing.assert_allclose(probabilities, [0.75, 0.25])
    types, probabilities = types_from_sample(np.array([3.0]), 8)
    assert (types.tolist(), probabilities.tolist()) == ([3.0], [1.0])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_types_stand_for_at_least_their_share(costs: list[float], count: int) -> None:
    types, probabilities = types_from_sample(np.array(costs), count)
    assert probabilities.sum() == pytest.approx(1.0)
    assert np.all(np.diff(types) > 0)
    assert types[-1] == max(costs)
    below = np.searchsorted(np.sort(costs), types, side="right") / len(costs)
    assert np.all(below >= np.cumsum(probabilities) - 1e-9)
