"""The weightings of this package against the suite for all, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.federated.weighting_conformance import WeightingConformance, some_figures

from noisemarket.errors import BadInput
from noisemarket.federated.weighting import (
    WEIGHTINGS,
    DataSize,
    Equal,
    PublicFigures,
    Weighting,
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


def test_all_of_the_package_are_tested() -> None:
    assert {name: kind.name for name, kind in WEIGHTINGS.items()} == {
        "equal": "equal",
        "data_size": "data_size",
    }


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 2.0], r"wrong = an array of shape \(2,\): .* 7 weights"),
        ([[1.0] * 7], "shape"),
        ([0.0] * 7, "nor all zero"),
        ([1.0] * 6 + [-1.0], "not negative"),
        ([1.0] * 6 + [np.nan], "finite"),
        ([1.0] * 6 + [np.inf], "finite"),
    ],
)
def test_what_cannot_weigh_is_refused(weights: Any, words: str) -> None:
    class Wrong(Weighting):
        name = "wrong"

        def weights(self, figures: PublicFigures) -> Any:
            return weights

    with pytest.raises(BadInput, match=words):
        owner_weights(Wrong(), some_figures())
