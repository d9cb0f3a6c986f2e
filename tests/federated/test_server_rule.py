"""The server's steps from public figures: rate, momentum and averaging."""

from __future__ import annotations

import doctest
import math
from itertools import pairwise

import numpy as np
import pytest

from noisemarket.federated import aggregation
from noisemarket.federated.aggregation import LONGEST, linear_steps, network_steps


@pytest.mark.parametrize(
    ("sigma", "rate", "momentum"),
    [(0.6, 6.0, 0.0), (0.3, 12.0, 0.0), (0.1, 36.0, 0.0), (0.05, 36.0, 0.5), (0.02, 36.0, 0.8),
     (0.0, 100.0, 0.8)],
)  # fmt: skip
def test_the_steps_of_a_hundred_owners(sigma: float, rate: float, momentum: float) -> None:
    steps = linear_steps(sigma / 10, 1.0)
    assert (steps.rate, steps.momentum) == pytest.approx((rate, momentum))


def travel(noise: float, rounds: int = 30) -> float:
    steps = linear_steps(noise, 1.0, rounds)
    return steps.rate / (1.0 - steps.momentum)


def test_the_less_noise_and_the_fewer_rounds_the_farther_the_model_goes() -> None:
    went = [travel(noise) for noise in np.geomspace(1e-4, 1.0, 30)]
    assert all(later <= earlier for earlier, later in pairwise(went))
    assert travel(0.0) == pytest.approx(LONGEST)
    assert travel(0.06, 120) == pytest.approx(travel(0.06, 30) / 2)
    assert travel(0.06, 30) == pytest.approx(travel(0.12, 30) * 2)


def test_a_clip_scales_the_rate_alone() -> None:
    one, four = linear_steps(0.03, 1.0), linear_steps(0.12, 4.0)
    assert four.rate == pytest.approx(one.rate / 4)
    assert four.momentum == pytest.approx(one.momentum)


def test_without_a_bound_on_updates_the_mean_counts_once() -> None:
    steps = linear_steps(0.3, math.inf)
    assert (steps.rate, steps.momentum) == (1.0, 0.0)


def test_a_network_has_no_momentum_and_a_rate_by_the_usual_noise() -> None:
    ones = np.ones(3)
    assert network_steps(np.full(3, 0.3), ones).rate == pytest.approx(1.0)
    assert network_steps(np.full(3, 0.15), ones).rate == pytest.approx(2.0)
    assert network_steps(np.zeros(3), ones).rate == 3.0
    assert network_steps(np.full(3, 0.6), ones).momentum == 0.0


def test_examples_of_docstrings() -> None:
    assert doctest.testmod(aggregation).attempted > 0
    assert doctest.testmod(aggregation).failed == 0
