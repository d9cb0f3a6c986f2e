"""Paired tests and their correction, against statsmodels' definition and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from noisemarket.study.results import differences, half_width, holm, pair_of, paired_p

PROBABILITIES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def test_holm_by_hand() -> None:
    """Smallest times 4, next times 3, ..., never falling, at most 1."""
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.01, None, 0.04]) == pytest.approx([0.02, None, 0.04])
    assert holm([]) == []


@given(PROBABILITIES)
def test_holm_rejects_no_more_than_bonferroni_allows_and_no_less(values: list[float]) -> None:
    """Between the raw values and Bonferroni's, in the same order."""
    corrected = [one for one in holm(values) if one is not None]
    for raw, own in zip(values, corrected, strict=True):
        assert raw - 1e-12 <= own <= min(1.0, raw * len(values)) + 1e-12
    order = np.argsort(values, kind="stable")
    assert all(np.diff(np.array(corrected)[order]) >= 0)


def test_the_paired_test_is_students() -> None:
    first, second = [94.1, 95.2, 94.8, 95.0], [92.9, 93.1, 92.4, 93.3]
    apart = np.subtract(first, second)
    t = apart.mean() / (apart.std(ddof=1) / math.sqrt(4))
    assert paired_p(apart) == pytest.approx(2 * stats.t.sf(abs(t), 3))
    assert paired_p(np.array([0.0, 0.0])) == 1.0
    assert paired_p(np.array([0.5, 0.5])) is None
    assert paired_p(np.array([0.5])) is None


def test_differences_are_of_all_pairs_under_each_budget() -> None:
    found = differences(
        {
            30.0: {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0], "c": [5.0, 6.1, 7.2]},
            None: {"a": [4.0, 4.1, 4.2], "b": [1.0, 1.2, 1.1]},
        }
    )
    assert len(found) == 4
    assert [abs(one.points) for one in found] == sorted(
        (abs(one.points) for one in found), reverse=True
    )
    by_pair = {(one.budget, one.first, one.second): one for one in found}
    assert by_pair[30.0, "a", "b"].p == 1.0
    assert not by_pair[30.0, "a", "b"].significant
    assert by_pair[30.0, "a", "c"].points == pytest.approx(-4.1)
    assert by_pair[30.0, "a", "c"].significant
    assert by_pair[None, "a", "b"].points == pytest.approx(3.0)


def test_pairs_that_decided_the_same_are_no_comparison() -> None:
    accuracies = {30.0: {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0], "c": [1.5, 2.1, 4.2]}}
    all_of_them = {(one.first, one.second): one for one in differences(accuracies)}
    some = {(one.first, one.second): one
            for one in differences(accuracies, [pair_of(30.0, "b", "a")])}  # fmt: skip
    assert all_of_them.keys() - some.keys() == {("a", "b")}
    p = some["a", "c"].p
    assert p is not None
    assert some["a", "c"].p_corrected == pytest.approx(2 * p), "two comparisons, not three"


def test_the_interval_of_a_mean() -> None:
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2)
    assert half_width([3.0]) == 0.0
