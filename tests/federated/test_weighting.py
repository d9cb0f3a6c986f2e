"""The weightings of this package against the suite for all, and what is refused."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from tests.conformance.weighting_suite import WeightingConformance, some_figures

from noisemarket.errors import BadInput
from noisemarket.federated import aggregation
from noisemarket.federated.aggregation import (
    WEIGHTINGS,
    DataSize,
    Equal,
    Noise,
    PublicFigures,
    Weighting,
    aggregate,
    capped,
    counted,
    default_weight_cap,
    effective_noise,
    effective_share,
    owner_weights,
)


class TestEqual(WeightingConformance):
    weighting = Equal()

    def test_all_count_alike(self) -> None:
        assert owner_weights(Equal(), some_figures()).tolist() == [1.0] * 7


class TestDataSize(WeightingConformance):
    weighting = DataSize()

    def test_owners_count_by_their_records(self) -> None:
        figures = some_figures()
        assert owner_weights(DataSize(), figures).tolist() == figures.records.tolist()


class TestNoise(WeightingConformance):
    weighting = Noise()

    def test_no_other_weights_have_more_signal_for_their_noise(self) -> None:
        """The signal grows with the root of the records; noise, an owner's data and owners vary."""
        figures = some_figures()
        signal = np.sqrt(figures.records)
        between = 0.04 / (10 * figures.beta + 1) ** 2
        variance = figures.sigma**2 + 1.0 / figures.records + between

        def exactness(weights: Any) -> float:
            return float((weights * signal).sum() ** 2 / (weights**2 * variance).sum())

        best = owner_weights(Noise(), figures)
        rng = np.random.default_rng(1)
        for _ in range(200):
            other = np.abs(best * (1.0 + 0.3 * rng.normal(size=len(best))))
            assert exactness(other) <= exactness(best)

    def test_the_mean_of_owners_of_one_size_is_the_least_noisy(self) -> None:
        figures = PublicFigures(np.array([0.6, 0.3, 0.0]), np.full(3, 600), 30)
        variance = figures.sigma**2 + 1.0 / 600 + 0.04 / 11**2
        best = owner_weights(Noise(), figures)
        assert best * variance == pytest.approx(np.full(3, best[0] * variance[0]))

    def test_of_owners_alike_but_for_noise_ratios_are_those_of_precision(self) -> None:
        figures = PublicFigures(np.array([0.6, 0.1]), np.full(2, 10**9), 30, beta=1e6)
        first, second = owner_weights(Noise(), figures)
        assert second / first == pytest.approx(36.0, rel=1e-6)

    def test_the_more_owners_differ_the_less_a_seller_counts(self) -> None:
        """At beta 0.1 an owner has two labels or so: a model of a few of them misses the others."""
        sellers = []
        for beta in (0.05, 0.1, 1.0, 10.0):
            figures = PublicFigures(np.array([0.6, 0.1]), np.full(2, 600), 30, beta)
            first, second = owner_weights(Noise(), figures)
            sellers.append(second / first)
        assert sellers == sorted(sellers)
        assert sellers[1] < 0.6 * sellers[2]


class TestEffective:
    @pytest.mark.parametrize("seed", range(3))
    def test_noise_is_that_of_as_noisy_a_mean_of_equals(self, seed: int) -> None:
        figures = some_figures(seed)
        weights = owner_weights(Noise(), figures)
        noise = np.random.default_rng(seed).normal(size=(100_000, len(figures))) * figures.sigma
        mean = noise @ weights / weights.sum()
        alike = effective_noise(figures.sigma, weights) / np.sqrt(len(figures))
        assert mean.std() == pytest.approx(alike, rel=0.02)

    def test_share_counts_owners(self) -> None:
        assert effective_share([3.0] * 8) == pytest.approx(1.0)
        assert effective_share([0.0, 5.0, 0.0, 0.0]) == pytest.approx(0.25)
        assert effective_share([2.0, 1.0]) == effective_share([4.0, 2.0])

    def test_examples_of_docstrings(self) -> None:
        assert doctest.testmod(aggregation).attempted > 0
        assert doctest.testmod(aggregation).failed == 0


def test_all_of_the_package_are_tested() -> None:
    assert set(WEIGHTINGS) == {"noise", "data_size", "equal"}


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 2.0], r"training.weighting is an array of shape \(2,\): .* 7 weights"),
        ([[1.0] * 7], "shape"),
        ([0.0] * 7, "nor all zero"),
        ([1.0] * 6 + [-1.0], "not negative"),
        ([1.0] * 6 + [np.nan], "finite"),
        ([1.0] * 6 + [np.inf], "finite"),
    ],
)
def test_what_cannot_weigh_is_refused(weights: Any, words: str) -> None:
    class Wrong(Weighting):
        def weights(self, figures: PublicFigures) -> Any:
            return weights

    with pytest.raises(BadInput, match=words):
        owner_weights(Wrong(), some_figures())


def test_stated_records_count_up_to_three_times_the_median() -> None:
    stated = np.array([600] * 9 + [60_000])
    assert counted(stated).tolist() == [600] * 9 + [1800]
    assert counted(np.array([5])).tolist() == [5]


@pytest.mark.parametrize(("owners", "cap"), [(1, 1.0), (2, 1.0), (5, 0.4), (20, 0.1), (1000, 0.1)])
def test_the_default_cap_is_a_tenth_or_two_equal_shares(owners: int, cap: float) -> None:
    assert default_weight_cap(owners) == cap


def test_an_owner_that_overstates_its_records_a_hundredfold_gains_little_weight() -> None:
    honest, lying = np.full(100, 600), np.full(100, 600)
    lying[0] = 60_000
    shares = []
    for records in (honest, lying):
        figures = PublicFigures(np.full(100, 0.1), counted(records), 30)
        weights = capped(owner_weights(Noise(), figures), default_weight_cap(100))
        shares.append(weights[0] / weights.sum())
    assert shares[0] == pytest.approx(0.01)
    assert shares[1] < 0.03


@pytest.mark.parametrize("present", [20, 5])
def test_nobody_moves_the_model_by_more_than_the_cap_whoever_else_is_missing(present: int) -> None:
    shares, cap = np.array([1e6, *[1.0] * 19]), 0.25
    uploads = {owner: np.eye(20, dtype=np.float32)[owner] for owner in range(present)}
    moved = aggregate(np.zeros(20), uploads, shares, weight_cap=cap)
    assert moved[0] == pytest.approx(cap)
    assert moved.sum() == pytest.approx(1.0)
