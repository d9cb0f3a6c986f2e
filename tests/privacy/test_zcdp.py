"""The mathematics of the account, against calculations that share no code with it."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad

from noisemarket.errors import BadInput
from noisemarket.privacy.zcdp import (
    Neighbours,
    dp_sgd_sensitivity,
    gaussian_epsilon,
    gaussian_rho,
    gaussian_rho_for_epsilon,
    sharded_sensitivity,
    sigma_for_epsilon,
    zcdp_epsilon,
    zcdp_epsilon_classic,
)

REPLACE, ZERO = Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT

RHOS = [10.0**power for power in (-12, -9, -6, -4, -2, -1, 0, 1, 2, 4, 6)]
DELTAS = [1e-300, 1e-100, 1e-30, 1e-12, 1e-5, 1e-2, 0.1, 0.5]

rhos = st.floats(-12.0, 6.0).map(lambda power: 10.0**power)
deltas = st.one_of(st.floats(-300.0, -0.31).map(lambda power: 10.0**power), st.floats(0.01, 0.5))


def exact_delta(rho: float, epsilon: mpmath.mpf) -> mpmath.mpf:
    """The same curve in 700 digits, where nothing can cancel."""
    mu = mpmath.sqrt(2 * mpmath.mpf(rho))
    first, second = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    root = mpmath.sqrt(2)
    return (mpmath.erfc(first / root) - mpmath.exp(epsilon) * mpmath.erfc(second / root)) / 2


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", DELTAS)
def test_exact_epsilon_against_many_digits(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    with mpmath.workdps(400):
        target, slack = mpmath.mpf(delta), mpmath.mpf(10) ** -10
        if epsilon == 0.0:
            assert exact_delta(rho, mpmath.mpf(0)) <= target * (1 + slack)
        else:
            above = exact_delta(rho, epsilon * (1 + slack))
            below = exact_delta(rho, epsilon * (1 - slack))
            assert above <= target <= below


@pytest.mark.parametrize(("rho", "epsilon"), [(0.1, 0.3), (0.16, 2.31), (1.5, 8.0), (20.0, 30.0)])
def test_exact_epsilon_is_of_the_hockey_stick_of_two_gaussians(rho: float, epsilon: float) -> None:
    mu = math.sqrt(2 * rho)

    def excess(x: float) -> float:
        here = math.exp(-((x - mu) ** 2) / 2)
        there = math.exp(epsilon - x * x / 2)
        return max(here - there, 0.0) / math.sqrt(2 * math.pi)

    start = epsilon / mu + mu / 2  # where the excess begins
    delta = quad(excess, start, start + 40)[0]
    assert gaussian_epsilon(rho, delta) == pytest.approx(epsilon, 1e-8)


def test_tight_bound_against_dp_accounting() -> None:
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    orders = 1 + np.geomspace(1e-4, 1e8, 4000)
    for rho in np.geomspace(1e-8, 1e3, 12):
        for delta in (1e-12, 1e-5, 1e-2, 0.3):
            theirs = rdp.RdpAccountant(orders=orders)
            theirs.compose(accounting.ZCDpEvent(float(rho)))
            assert zcdp_epsilon(rho, delta) == pytest.approx(theirs.get_epsilon(delta), rel=1e-4)


@pytest.mark.parametrize("multiplier", [9.6, 19.2])
def test_exact_epsilon_against_privacy_loss_distributions(multiplier: float) -> None:
    accounting = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    theirs = pld.PLDAccountant()
    theirs.compose(accounting.GaussianDpEvent(multiplier), 30)
    ours = gaussian_epsilon(30 * gaussian_rho(1.0, multiplier), 1e-5)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-5)


@pytest.mark.parametrize(
    ("sigma", "sharded", "dp_sgd"),
    [
        (0.05, 19.81, 2.18),
        (0.1, 8.27, 1.01),
        (0.2, 3.66, 0.47),
        (0.3, 2.31, 0.30),
        (0.6, 1.07, 0.14),
    ],
)
def test_known_figures(sigma: float, sharded: float, dp_sgd: float) -> None:
    of_sharded = sharded_sensitivity(1.0, 64, REPLACE)
    assert gaussian_rho(of_sharded, sigma) == pytest.approx(2 / (64 * sigma) ** 2)
    epsilon = gaussian_epsilon(30 * gaussian_rho(of_sharded, sigma), 1e-5)
    assert epsilon == pytest.approx(sharded, abs=0.005)

    of_dp_sgd = dp_sgd_sensitivity(1.0, 64, 10, 0.05, REPLACE)
    assert gaussian_rho(of_dp_sgd, sigma) == pytest.approx(2 * 10 * 0.05**2 / (64 * sigma) ** 2)
    epsilon = gaussian_epsilon(30 * gaussian_rho(of_dp_sgd, sigma), 1e-5)
    assert epsilon == pytest.approx(dp_sgd, abs=0.005)


def test_zero_out_costs_a_quarter() -> None:
    for make in (
        lambda n: sharded_sensitivity(1.5, 7, n),
        lambda n: dp_sgd_sensitivity(1.5, 7, 3, 0.1, n),
    ):
        assert gaussian_rho(make(REPLACE), 0.3) == pytest.approx(4 * gaussian_rho(make(ZERO), 0.3))


def test_rounding_to_the_grid_is_not_halved() -> None:
    assert sharded_sensitivity(1.0, 4, REPLACE, 0.1) == pytest.approx(0.6)
    assert sharded_sensitivity(1.0, 4, ZERO, 0.1) == pytest.approx(0.35)
    assert dp_sgd_sensitivity(1.0, 4, 9, 1.0, ZERO, 0.1) == pytest.approx(3 * 0.35)


def test_no_noise_and_no_bound_cost_everything() -> None:
    for rho in (gaussian_rho(0.1, 0.0), gaussian_rho(math.inf, 0.6), gaussian_rho(math.inf, 0.0)):
        assert rho == math.inf
        assert gaussian_epsilon(rho, 1e-5) == math.inf
        assert zcdp_epsilon(rho, 1e-5) == math.inf
        assert zcdp_epsilon_classic(rho, 1e-5) == math.inf
    assert gaussian_rho(0.0, 0.0) == 0.0
    assert gaussian_epsilon(0.0, 1e-5) == zcdp_epsilon(0.0, 1e-5) == 0.0


@pytest.mark.parametrize("rho", [5e-324, 1e-300, 1e300, 1e308])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 0.5, 1 - 2**-53])
def test_extremes_end_in_numbers(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    assert epsilon >= 0.0
    assert epsilon <= zcdp_epsilon(rho, delta) * (1 + 1e-9)


@given(rhos, deltas)
def test_the_sharper_the_smaller(rho: float, delta: float) -> None:
    exact, tight = gaussian_epsilon(rho, delta), zcdp_epsilon(rho, delta)
    assert exact <= tight * (1 + 1e-9) + 1e-15
    assert tight <= zcdp_epsilon_classic(rho, delta) * (1 + 1e-12)


@given(rhos, deltas, st.floats(1.0, 1e6), st.sampled_from([gaussian_epsilon, zcdp_epsilon]))
def test_epsilon_grows_with_rho_and_falls_with_delta(
    rho: float, delta: float, factor: float, epsilon: Callable[[float, float], float]
) -> None:
    assert epsilon(rho, delta) <= epsilon(rho * factor, delta) * (1 + 1e-9) + 1e-15
    assert epsilon(rho, min(delta * factor, 0.5)) <= epsilon(rho, delta) * (1 + 1e-9) + 1e-15


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(1.0, 1e3))
def test_more_noise_costs_less(sensitivity: float, sigma: float, factor: float) -> None:
    assert gaussian_rho(sensitivity, sigma * factor) <= gaussian_rho(sensitivity, sigma)


@given(rhos, deltas)
def test_rho_comes_back_from_its_epsilon(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    assume(epsilon > 1e-9 * math.sqrt(rho))  # at epsilon 0 many rho meet
    assert gaussian_rho_for_epsilon(epsilon, delta) == pytest.approx(rho, rel=1e-7)


@given(st.floats(-8.0, 5.0).map(lambda power: 10.0**power), deltas)
def test_epsilon_comes_back_from_its_rho(epsilon: float, delta: float) -> None:
    rho = gaussian_rho_for_epsilon(epsilon, delta)
    assert gaussian_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-7, abs=1e-9)


@given(st.floats(0.01, 50.0), st.floats(1e-10, 0.1), st.integers(1, 1000), st.floats(1e-4, 10.0))
def test_sigma_for_epsilon_gives_that_epsilon(
    epsilon: float, delta: float, rounds: int, sensitivity: float
) -> None:
    sigma = sigma_for_epsilon(sensitivity, epsilon, delta, rounds)
    spent = rounds * gaussian_rho(sensitivity, sigma)
    assert gaussian_epsilon(spent, delta) == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian_rho(0.1, -1.0),
        lambda: gaussian_rho(0.1, math.nan),
        lambda: gaussian_rho(0.1, math.inf),
        lambda: gaussian_rho(-0.1, 1.0),
        lambda: sigma_for_epsilon(-0.1, 1.0, 0.1, 1),
        lambda: gaussian_epsilon(-1.0, 0.1),
        lambda: gaussian_epsilon(math.nan, 0.1),
        lambda: gaussian_epsilon(1.0, 0.0),
        lambda: gaussian_epsilon(1.0, 1.0),
        lambda: zcdp_epsilon(1.0, math.nan),
        lambda: zcdp_epsilon_classic(1.0, 2.0),
        lambda: gaussian_rho_for_epsilon(0.0, 0.1),
        lambda: gaussian_rho_for_epsilon(math.inf, 0.1),
        lambda: sigma_for_epsilon(1.0, 1.0, 0.1, 0),
        lambda: Neighbours.named("add_one"),
    ],
)
def test_bad_input(call: Callable[[], object]) -> None:
    with pytest.raises(BadInput):
        call()
