"""The screening menu against independent solvers, brute force and closed forms."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.mechanisms.continuous_menu import ContinuousMenu, continuous_menu, virtual_costs

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.surface import SURFACES
from noisemarket.mechanisms.menu import Menu, grid_menu, types_from_sample

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


def default_grid_menu(types: FloatArray, probabilities: FloatArray) -> Menu:
    values = value(LEVELS.savings)
    return grid_menu(types, probabilities, LEVELS.savings, values, LEVELS.payments, **ECONOMY)


def assert_no_type_regrets(menu: Menu, allowance: float) -> None:
    """IR and IC, spelled out pair by pair and independently of the menu's own numbers."""
    gains, worst = [], 0.0
    for m, theta in enumerate(menu.types):
        own = PAYMENT_VALUE * menu.payments[m] - PRIVACY_WEIGHT * theta * menu.savings[m]
        assert own >= -1e-9
        gains.append(own)
        for i in range(len(menu.types)):
            other = PAYMENT_VALUE * menu.payments[i] - PRIVACY_WEIGHT * theta * menu.savings[i]
            assert other <= own + allowance, (m, i)
            worst = max(worst, other - own)
    assert menu.ir_slack == pytest.approx(min(gains), abs=1e-12)
    assert menu.ic_violation == pytest.approx(worst, abs=1e-12)
    assert np.all(np.diff(menu.savings) <= 1e-12)
    assert np.all(menu.payments >= 0)


def taken_savings(menu: Menu, costs: FloatArray) -> FloatArray:
    chosen = menu.choose(costs)
    return np.where(chosen < 0, 0.0, menu.savings[chosen])


# --- the continuous menu ------------------------------------------------------------------------


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
    assert menu.ir_slack == pytest.approx(0.0, abs=1e-12)
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
    assert set(menu.choose([0.0, 0.1, 5.0])) == {-1}


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
        assert set(menu.choose(types)) == {-1}


# --- the grid menu ------------------------------------------------------------------------------


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
        start = time.perf_counter()
        default_grid_menu(types, probabilities)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05


# --- owners choosing ----------------------------------------------------------------------------


def hand_made_menu() -> Menu:
    savings, payments = np.array([0.4, 0.2, 0.0]), np.array([10.0, 7.0, 0.0])
    return Menu(np.array([0.5, 1.0, 4.0]), np.full(3, 1 / 3), savings, payments, 1.0, 10.0, 0.0)


def test_owners_take_their_best_item_and_larger_savings_on_ties() -> None:
    # Item 0 beats 1 up to cost 1.5 (10 - 4c >= 7 - 2c); item 1 beats nothing up to 3.5.
    costs = np.array([[0.0, 1.5, 1.5 + 1e-6], [3.5, 3.5 + 1e-6, 100.0]])
    np.testing.assert_array_equal(hand_made_menu().choose(costs), [[0, 0, 1], [1, -1, -1]])
    assert hand_made_menu().choose(2.0) == 1
    assert hand_made_menu().choose([]).shape == (0,)


def test_a_million_owners_choose_in_bounded_memory() -> None:
    types, probabilities = types_from_sample(np.linspace(0.6, 4.8, 4001), 64)
    menu = continuous_menu(types, probabilities, value, slope, **CAPS, **ECONOMY)
    costs = np.random.default_rng(0).uniform(0.5, 6.0, 1_000_000)
    tracemalloc.start()
    chosen = menu.choose(costs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64e6  # 64 items for everyone at once would be 512 MB
    some = np.random.default_rng(1).integers(0, costs.size, 200)
    np.testing.assert_array_equal(chosen[some], menu.choose(costs[some]))
    utility = PAYMENT_VALUE * menu.payments - PRIVACY_WEIGHT * costs[some, None] * menu.savings
    got = np.where(chosen[some] < 0, 0.0, utility[np.arange(200), chosen[some]])
    np.testing.assert_allclose(got, np.maximum(utility.max(axis=1), 0.0), atol=1e-8)


def test_a_menu_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        hand_made_menu().savings[0] = 1.0


# --- types --------------------------------------------------------------------------------------


def test_types_are_upper_quantiles() -> None:
    types, probabilities = types_from_sample([4, 1, 3, 2, 6, 5], 3)
    np.testing.assert_array_equal(types, [2, 4, 6])
    np.testing.assert_allclose(probabilities, 1 / 3)


def test_equal_types_are_merged() -> None:
    types, probabilities = types_from_sample([1, 1, 1, 2], 4)
    np.testing.assert_array_equal(types, [1, 2])
    np.testing.assert_allclose(probabilities, [0.75, 0.25])
    types, probabilities = types_from_sample([3.0], 8)
    assert (types.tolist(), probabilities.tolist()) == ([3.0], [1.0])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_types_stand_for_at_least_their_share(costs: list[float], count: int) -> None:
    types, probabilities = types_from_sample(costs, count)
    assert probabilities.sum() == pytest.approx(1.0)
    assert np.all(np.diff(types) > 0)
    assert types[-1] == max(costs)
    below = np.searchsorted(np.sort(costs), types, side="right") / len(costs)
    assert np.all(below >= np.cumsum(probabilities) - 1e-9)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("types", {"types": [2.0, 1.0]}),
        ("types", {"types": [1.0, 1.0]}),
        ("types", {"types": [-1.0, 1.0]}),
        ("types", {"types": [1.0, np.nan]}),
        ("types", {"types": []}),
        ("probabilities", {"probabilities": [0.5, 0.6]}),
        ("probabilities", {"probabilities": [1.0, 0.0]}),
        ("probabilities", {"probabilities": [1.0]}),
        ("payment_value", {"payment_value": 0.0}),
        ("privacy_weight", {"privacy_weight": np.inf}),
        ("price_weight", {"price_weight": -0.1}),
    ],
)
def test_bad_populations_and_weights_are_refused(field: str, wrong: dict[str, object]) -> None:
    good: dict[str, object] = {"types": [1.0, 2.0], "probabilities": [0.5, 0.5], **ECONOMY}
    grid = {"savings": [0, 0.5], "values": [0, 1], "payments": [0, 1]}
    with pytest.raises(BadInput) as refused:
        grid_menu(**(good | grid | wrong))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("savings", {"savings": [0.0, 0.1, 0.3]}),
        ("savings", {"savings": [0.1, 0.2, 0.3]}),
        ("savings", {"savings": [0.0, 0.0, 0.0]}),
        ("payments", {"payments": [0.0]}),
        ("payments", {"payments": [0.0, -1.0]}),
        ("values", {"values": [0.0, 1.0]}),
        ("values", {"values": [0.0, np.nan, 1.0]}),
    ],
)
def test_bad_grids_are_refused(field: str, wrong: dict[str, list[float]]) -> None:
    good = {"savings": [0.0, 0.1, 0.2], "values": [0.0, 1.0, 2.0], "payments": [0.0, 1.0]}
    with pytest.raises(BadInput) as refused:
        grid_menu([1.0], [1.0], **(good | wrong), **ECONOMY)
    assert refused.value.field == field


def test_other_bad_inputs_are_refused() -> None:
    with pytest.raises(BadInput, match="reservation_cost"):
        hand_made_menu().choose([1.0, np.nan])
    with pytest.raises(BadInput, match="reservation_costs"):
        types_from_sample([], 3)
    with pytest.raises(BadInput, match="count"):
        types_from_sample([1.0], 0)
