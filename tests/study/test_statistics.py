"""What counts prove, against independent computations and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm

from noisemarket.study.audit import (
    epsilon_of,
    mu_lower,
    noise_check,
    rate_upper,
)


@pytest.mark.parametrize("trials", [1, 20, 331, 1000])
@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-5])
def test_rate_upper_is_clopper_and_pearsons(trials: int, alpha: float) -> None:
    for errors in {0, 1, trials // 7, trials // 2, trials - 1, trials}:
        test = binomtest(errors, trials, alternative="less")
        expected = test.proportion_ci(1.0 - alpha, method="exact").high
        assert float(rate_upper(errors, trials, alpha)) == pytest.approx(expected, rel=1e-9)


@given(
    trials=st.integers(1, 400),
    share=st.floats(0, 1),
    alpha=st.floats(1e-6, 0.3),
)
def test_rate_upper_leaves_exactly_alpha_below(trials: int, share: float, alpha: float) -> None:
    errors = min(int(share * trials), trials - 1)
    bound = float(rate_upper(errors, trials, alpha))
    assert binom.cdf(errors, trials, bound) == pytest.approx(alpha, rel=1e-6)


@given(rate=st.floats(0.001, 0.999), trials=st.integers(1, 200), alpha=st.floats(1e-4, 0.3))
def test_rate_upper_covers(rate: float, trials: int, alpha: float) -> None:
    """Whatever the rate, the bound is below it with probability at most alpha: no sampling."""
    counts = np.arange(trials + 1)
    missed = rate_upper(counts, trials, alpha) < rate
    assert binom.pmf(counts[missed], trials, rate).sum() <= alpha * (1 + 1e-9)


@given(
    trials=st.integers(20, 500),
    errors=st.tuples(st.integers(0, 500), st.integers(0, 500)),
    alpha=st.floats(1e-6, 0.3),
)
def test_mu_lower_is_what_both_rates_leave(
    trials: int, errors: tuple[int, int], alpha: float
) -> None:
    fp, fn = (min(count, trials) for count in errors)
    a, b = (float(rate_upper(count, trials, alpha / 2)) for count in (fp, fn))
    expected = max(0.0, norm.ppf(1 - a) - norm.ppf(b)) if max(a, b) < 1 else 0.0
    found = mu_lower(fp, fn, trials, alpha)
    assert found == pytest.approx(expected, abs=1e-9)
    assert found == mu_lower(fn, fp, trials, alpha)
    if fp < trials:
        assert mu_lower(fp + 1, fn, trials, alpha) <= found
    assert found <= mu_lower(0, 0, trials, alpha) + 1e-12


def test_epsilon_of_is_the_exact_one() -> None:
    epsilon = epsilon_of(2.5, 1e-5)
    delta = norm.cdf(1.25 - epsilon / 2.5) - math.exp(epsilon) * norm.cdf(-1.25 - epsilon / 2.5)
    assert delta == pytest.approx(1e-5, rel=1e-9)


@given(mu=st.floats(0.0, 6.0), trials=st.integers(20, 400), alpha=st.floats(1e-5, 0.3))
def test_a_right_protection_is_rarely_accused(mu: float, trials: int, alpha: float) -> None:
    """The exact probability that both arms' counts of a Gaussian release prove more than its mu."""
    half = norm.isf(rate_upper(np.arange(trials + 1), trials, alpha / 2.0))
    probability = binom.pmf(np.arange(trials + 1), trials, norm.sf(mu / 2.0))
    accused = np.add.outer(half, half) > mu
    assert probability @ accused @ probability <= alpha * (1 + 1e-9)


def test_noise_two_per_cent_short_shows_in_one_upload() -> None:
    values, rng = 80_202, np.random.default_rng(1)
    drawn = rng.standard_normal(values)
    for share, breach in ((1.0, False), (0.98, True)):
        upload = share * drawn
        assert noise_check("upload", float(upload @ upload), values, 1e-3).breach == breach
