"""The menu of theory against an independent solver and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.pricing.continuous_menu import ContinuousMenu, continuous_menu, virtual_costs
from tests.pricing.menu_economy import (
    CAPS,
    ECONOMY,
    LEVELS,
    PRICE_WEIGHT,
    RATE,
    UNCAPPED,
    assert_no_type_regrets,
    choose,
    default_grid_menu,
    grid_menu,
    parabola,
    random_population,
    slope,
    taken_savings,
    value,
)

from noisemarket.game.levels import FloatArray

pytestmark = pytest.mark.slow


def full_problem(
    types: FloatArray, probabilities: FloatArray, payment_max: float, seed: int
) -> float:
    """SciPy's optimum with every saving and payment free and every constraint written out."""
    count = len(types)
    others = [(m, i) for m in range(count) for i in range(count) if m != i]
    cap = min(payment_max, RATE * types[-1] * 0.6)  # nobody is ever paid more; scales variables

    def split(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return 0.6 * x[:count], cap * x[count:]

    def loss(x: FloatArray) -> float:
        savings, payments = split(x)
        return -float(probabilities @ (value(savings) - value(0.0) - PRICE_WEIGHT * payments))

    def loss_slope(x: FloatArray) -> FloatArray:
        savings, _ = split(x)
        by_saving = -probabilities * slope(savings) * 0.6
        return np.concatenate([by_saving, probabilities * PRICE_WEIGHT * cap])

    rows = []  # linear constraints row @ x >= 0, in money over the cap
    for m, i in others:
        row = np.zeros(2 * count)
        row[count + m], row[count + i] = 1.0, -1.0
        row[m], row[i] = -RATE * types[m] * 0.6 / cap, RATE * types[m] * 0.6 / cap
        rows.append(row)
    for m in range(count):
        row = np.zeros(2 * count)
        row[count + m], row[m] = 1.0, -RATE * types[m] * 0.6 / cap
        rows.append(row)
    matrix = np.array(rows)
    constraint = {"type": "ineq", "fun": lambda x: matrix @ x, "jac": lambda x: matrix}
    rng = np.random.default_rng(seed)
    best = 0.0
    for start in [np.zeros(2 * count), np.full(2 * count, 0.5), rng.random(2 * count)]:
        found = minimize(
            loss,
            start,
            jac=loss_slope,
            bounds=[(0.0, 1.0)] * (2 * count),
            constraints=[constraint],
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if np.min(matrix @ found.x) > -1e-9:
            best = max(best, -float(found.fun))
    return best


@pytest.mark.parametrize("caps", [CAPS, UNCAPPED], ids=["capped", "uncapped"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_continuous_menu_is_the_optimum_of_the_full_problem(
    caps: dict[str, float], count: int, seed: int
) -> None:
    types, probabilities = random_population(seed, count)
    menu = continuous_menu(types, probabilities, value, slope, **caps, **ECONOMY)
    assert_no_type_regrets(menu, 1e-9)
    assert menu.payments[0] <= caps["payment_max"]
    best = full_problem(types, probabilities, caps["payment_max"], seed)
    assert best > 0.1
    assert menu.curator_gain == pytest.approx(best, rel=1e-4)
    offered = value(menu.savings) - value(0.0) - PRICE_WEIGHT * menu.payments
    assert menu.curator_gain == pytest.approx(float(probabilities @ offered), rel=1e-12)
    np.testing.assert_allclose(taken_savings(menu, types), menu.savings, atol=1e-6)


@pytest.mark.parametrize("caps", [CAPS, UNCAPPED], ids=["capped", "uncapped"])
def test_irregular_distributions_are_ironed(caps: dict[str, float]) -> None:
    types, probabilities = np.array([1.0, 2.0, 2.1, 2.2]), np.array([0.45, 0.03, 0.02, 0.5])
    virtual = virtual_costs(types, probabilities)
    assert np.any(np.diff(virtual) < 0)
    menu = continuous_menu(types, probabilities, value, slope, **caps, **ECONOMY)
    assert menu.savings[0] > menu.savings[1] > 0
    np.testing.assert_array_equal(menu.savings[1:], menu.savings[3])  # one item for three types
    assert_no_type_regrets(menu, 1e-9)
    best = full_problem(types, probabilities, caps["payment_max"], 0)
    assert menu.curator_gain == pytest.approx(best, rel=1e-4)


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0.0, 40.0), st.floats(0.0, 0.2))
@settings(max_examples=25, deadline=None)
def test_no_type_ever_regrets_its_item(
    seed: int, count: int, payment_max: float, price_weight: float
) -> None:
    types, probabilities = random_population(seed, count)
    economy = ECONOMY | {"price_weight": price_weight}
    menu = continuous_menu(
        types, probabilities, value, slope, sigma_max=0.6, payment_max=payment_max, **economy
    )
    assert_no_type_regrets(menu, 1e-9)
    assert np.max(menu.payments) <= payment_max
    assert menu.multiplier == 0.0 or menu.payments[0] == pytest.approx(payment_max, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_multiplier_is_the_price_of_the_cap(seed: int) -> None:
    types, probabilities = random_population(seed, 4)

    def gain(payment_max: float) -> ContinuousMenu:
        return continuous_menu(
            types, probabilities, value, slope, sigma_max=0.6, payment_max=payment_max, **ECONOMY
        )

    menu = gain(9.0)
    assert menu.multiplier > 1e-3
    numeric = (gain(9.0 + 1e-4).curator_gain - gain(9.0 - 1e-4).curator_gain) / 2e-4
    assert menu.multiplier == pytest.approx(numeric, rel=1e-4)


def test_one_type_is_paid_its_cost_and_no_more() -> None:
    top, bend, theta = 4.0, 8.0, 1.5
    menu = continuous_menu([theta], [1.0], *parabola(top, bend), **UNCAPPED, **ECONOMY)
    saving = (top - PRICE_WEIGHT * RATE * theta) / bend
    assert 0 < saving < 0.6
    assert menu.savings[0] == pytest.approx(saving, rel=1e-12)
    assert menu.payments[0] == pytest.approx(RATE * theta * saving, rel=1e-12)
    assert menu.multiplier == 0.0


def test_two_types_by_hand() -> None:
    top, bend, (low, high), q = 6.0, 12.0, (0.8, 1.7), np.array([0.4, 0.6])
    unit_cost = PRICE_WEIGHT * RATE * np.array([low, high + q[0] / q[1] * (high - low)])
    savings = (top - unit_cost) / bend
    menu = continuous_menu([low, high], q, *parabola(top, bend), **UNCAPPED, **ECONOMY)
    np.testing.assert_allclose(menu.savings, savings, rtol=1e-12)
    rent = (high - low) * savings[1]
    payments = RATE * np.array([low * savings[0] + rent, high * savings[1]])
    np.testing.assert_allclose(menu.payments, payments, rtol=1e-12)

    # With a binding cap: savings fall along eta's direction until the cheap type's payment fits.
    cap = 0.9 * payments[0]
    gaps = np.array([low, high - low])
    eta = (payments[0] - cap) / (RATE**2 * np.sum(gaps**2 / q) / bend)
    capped = continuous_menu(
        [low, high], q, *parabola(top, bend), sigma_max=0.6, payment_max=cap, **ECONOMY
    )
    np.testing.assert_allclose(capped.savings, savings - eta * RATE * gaps / q / bend, rtol=1e-9)
    assert capped.multiplier == pytest.approx(eta, rel=1e-9)
    assert capped.payments[0] == pytest.approx(cap, rel=1e-12)


def test_a_linear_value_uses_the_cap_up() -> None:
    """There p_1 jumps from far above the cap to 0 at one multiplier; the optimum is in between."""
    menu = continuous_menu([1.0], [1.0], *parabola(5.0, 0.0), **CAPS, **ECONOMY)
    assert menu.payments[0] == pytest.approx(16.0)
    assert menu.savings[0] == pytest.approx(16.0 / RATE)


def test_nobody_trades_what_is_worth_too_little() -> None:
    types, probabilities = random_population(1, 4)
    menu = continuous_menu(
        types,
        probabilities,
        *parabola(0.9 * PRICE_WEIGHT * RATE * types[0], 1.0),
        **CAPS,
        **ECONOMY,
    )
    np.testing.assert_array_equal(menu.savings, 0.0)
    np.testing.assert_array_equal(menu.payments, 0.0)
    assert menu.curator_gain == 0.0
    assert set(choose(menu, np.array([0.0, 0.1, 5.0]))) == {-1}


def test_everybody_sells_everything_that_costs_little() -> None:
    types = np.array([0.01, 0.02, 0.03])
    menu = continuous_menu(types, np.full(3, 1 / 3), value, slope, **CAPS, **ECONOMY)
    np.testing.assert_array_equal(menu.savings, 0.6)
    np.testing.assert_allclose(menu.payments, RATE * 0.03 * 0.6)
    grid = default_grid_menu(types, np.full(3, 1 / 3))
    np.testing.assert_allclose(grid.savings, 0.6)
    np.testing.assert_array_equal(grid.payments, 1.0)  # 0.5625 on steps of 0.5


def test_without_money_the_menu_is_empty() -> None:
    types, probabilities = random_population(2, 3)
    caps = {"sigma_max": 0.6, "payment_max": 0.0}
    for menu in (
        continuous_menu(types, probabilities, value, slope, **caps, **ECONOMY),
        grid_menu(
            types, probabilities, LEVELS.savings, value(LEVELS.savings), np.zeros(33), **ECONOMY
        ),
    ):
        np.testing.assert_array_equal(menu.savings, 0.0)
        np.testing.assert_array_equal(menu.payments, 0.0)
        assert set(choose(menu, types)) == {-1}


# --- the grid menu ------------------------------------------------------------------------------
