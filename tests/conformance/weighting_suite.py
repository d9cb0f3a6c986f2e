"""What every weighting must hold, for those of this package and of others.

A test module gets the whole suite with one class::

    class TestMine(WeightingConformance):
        weighting = MyWeighting()
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from noisemarket.federated.aggregation import PublicFigures, Weighting, owner_weights

OWNERS = 7


def some_figures(seed: int = 0, owners: int = OWNERS) -> PublicFigures:
    """Owners of any sizes with any noise, some without noise, some with a single record."""
    rng = np.random.default_rng(seed)
    sigma = np.where(rng.random(owners) < 0.3, 0.0, rng.uniform(0.01, 0.6, owners))
    records = rng.integers(1, 1000, owners)
    return PublicFigures(sigma, records, rounds=30, beta=10 ** rng.uniform(-2, 2))


EDGES = {
    "one owner": PublicFigures(np.array([0.3]), np.array([5]), 1),
    "nobody adds noise": PublicFigures(np.zeros(3), np.array([1, 10, 100]), 30),
    "all alike": PublicFigures(np.full(3, 0.6), np.full(3, 600), 30),
    "a record each": PublicFigures(np.array([1e-6, 0.3, 1e6]), np.ones(3, np.int64), 100_000),
    "very uneven": PublicFigures(np.array([0.6, 0.0]), np.array([1, 10**9]), 30),
    "a label each": PublicFigures(np.array([0.6, 0.0]), np.array([600, 600]), 30, beta=1e-6),
    "all labels alike": PublicFigures(np.array([0.6, 0.0]), np.array([600, 600]), 30, beta=1e6),
}


class WeightingConformance:
    """The suite. ``weighting`` is the one to test."""

    weighting: ClassVar[Weighting]

    @pytest.mark.parametrize("seed", range(5))
    def test_weights_can_weigh(self, seed: int) -> None:
        weights = owner_weights(self.weighting, some_figures(seed))
        assert weights.shape == (OWNERS,)
        assert np.isfinite(weights).all()
        assert (weights >= 0.0).all()
        assert weights.sum() > 0.0

    @pytest.mark.parametrize("case", EDGES)
    def test_so_do_those_of_unusual_owners(self, case: str) -> None:
        assert owner_weights(self.weighting, EDGES[case]).sum() > 0.0

    def test_the_same_figures_give_the_same_weights(self) -> None:
        first = owner_weights(self.weighting, some_figures())
        owner_weights(self.weighting, some_figures(1))
        again = pickle.loads(pickle.dumps(self.weighting))
        assert np.array_equal(first, owner_weights(self.weighting, some_figures()))
        assert np.array_equal(first, owner_weights(again, some_figures()))

    def test_the_figures_are_left_alone(self) -> None:
        figures = some_figures()
        figures.sigma.setflags(write=False)
        figures.records.setflags(write=False)
        weights = owner_weights(self.weighting, figures)
        assert not np.shares_memory(weights, figures.sigma)
        assert not np.shares_memory(weights, figures.records)

    def test_weights_go_with_their_owners(self) -> None:
        figures, order = some_figures(), np.random.default_rng(9).permutation(OWNERS)
        other = replace(figures, sigma=figures.sigma[order], records=figures.records[order])
        weights = owner_weights(self.weighting, figures)
        assert owner_weights(self.weighting, other) == pytest.approx(weights[order], rel=1e-12)

    def test_owners_with_the_same_figures_count_alike(self) -> None:
        weights = owner_weights(self.weighting, EDGES["all alike"])
        assert weights == pytest.approx(np.full(3, weights[0]))
