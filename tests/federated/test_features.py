"""Fixed features: a pure function of one record, with the same bits alone and among others."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.federated.data import Dataset
from noisemarket.federated.features import Edges, FeatureMap, UnitVectors, total, unit


def pictures(count: int = 300, side: int = 28, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side), dtype=np.uint8)


def rows(count: int = 300, width: int = 37) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)


CASES: dict[str, tuple[FeatureMap, np.ndarray]] = {
    "edges": (Edges(), pictures()),
    "edges of small pictures": (Edges(), pictures(side=8)),
    "edges of large pictures": (Edges(), pictures(side=85)),
    "vectors": (UnitVectors(37), rows()),
}


@pytest.mark.parametrize("case", CASES)
class TestAny:
    def test_a_record_has_the_same_bits_alone_and_in_any_batch(self, case: str) -> None:
        features, records = CASES[case]
        together = features.extract(records)
        assert together.dtype == np.float32
        assert together.shape == (len(records), features.dimension)
        for index in (0, 127, 128, 299):
            assert np.array_equal(features.extract(records[index : index + 1])[0], together[index])
        assert np.array_equal(features.extract(records[::-1])[::-1], together)
        assert np.array_equal(features.extract(records[3:150]), together[3:150])

    def test_each_has_length_1(self, case: str) -> None:
        features, records = CASES[case]
        lengths = np.linalg.norm(features.extract(records).astype(np.float64), axis=1)
        assert lengths == pytest.approx(1.0, abs=1e-6)

    def test_nothing_of_a_record_gives_zeros(self, case: str) -> None:
        features, records = CASES[case]
        assert not features.extract(np.zeros_like(records[:2])).any()
        assert features.extract(records[:0]).shape == (0, features.dimension)


class TestEdges:
    def test_bytes_and_floats_are_the_same(self) -> None:
        shown = pictures(20)
        floats = shown.astype(np.float32) / np.float32(255.0)
        assert np.array_equal(Edges().extract(shown), Edges().extract(floats))

    def test_these_are_the_bits_of_version_1(self) -> None:
        """Other bits need another version: jobs under way would mix two kinds of features."""
        side = np.arange(28)
        drawn = ((side[:, None] * 7 + side[None, :] * 13) % 256).astype(np.uint8)[None]
        found = Edges().extract(drawn)[0]
        assert Edges().label == "edges-5x5x8 v1"
        digest = hashlib.sha256(found.astype("<f4").tobytes()).hexdigest()
        assert digest.startswith("157e4196bac74e1ea8ff7402")

    def test_brightness_hardly_counts_but_direction_does(self) -> None:
        upright, lying = np.zeros((2, 28, 28), np.float32)
        upright[4:24, 12:16] = lying[12:16, 4:24] = 1.0
        full, half, across = Edges().extract(np.stack([upright, 0.5 * upright, lying]))
        assert full @ half > 0.95
        assert full @ across < 0.5

    @pytest.mark.parametrize(
        ("records", "words"),
        [
            (np.zeros((2, 28, 27), np.uint8), "data is items of 28 x 27: give square grey"),
            (np.zeros((2, 7, 7), np.uint8), "of at least 8 x 8"),
            (np.zeros((2, 3, 28, 28), np.uint8), "items of 3 x 28 x 28"),
            (np.zeros((2, 9), np.uint8), "items of 9"),
            (np.full((2, 28, 28), 2.0, np.float32), "outside of 0 to 1"),
            (np.full((2, 28, 28), np.nan, np.float32), "outside of 0 to 1"),
        ],
    )
    def test_what_is_no_picture_is_refused(self, records: np.ndarray, words: str) -> None:
        with pytest.raises(BadInput, match=words):
            Edges().extract(records)


def test_vectors_of_another_width_are_refused() -> None:
    with pytest.raises(BadInput, match=r"items of 3: give vectors of 2 numbers"):
        UnitVectors(2).extract(np.zeros((1, 3), np.float32))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 200])
def test_total_is_a_sum(length: int) -> None:
    values = np.random.default_rng(length).normal(size=(length, 5))
    assert total(values) == pytest.approx(values.sum(axis=0))
    assert np.linalg.norm(unit(values), axis=0) == pytest.approx(1.0)


class TestDataset:
    def test_a_model_gets_features_instead_of_pictures(self) -> None:
        shown, labels = pictures(12), np.arange(12) % 3
        plain = Dataset.of(shown, labels, shown[:5], labels[:5])
        data = plain.with_features()
        assert data.with_features() is data
        assert plain.with_features() is data, "computed once"
        assert np.array_equal(data.ready(shown), Edges().extract(shown))
        assert np.array_equal(data.train_inputs(), data.ready(shown))
        assert data.train_inputs() is data.train_inputs()
        assert np.array_equal(data.test_inputs, data.ready(shown[:5]))
        assert plain.train_inputs().shape == (12, 1, 28, 28)

    def test_the_features_count_in_the_checksum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown, labels = pictures(4), np.arange(4) % 2

        def checksum() -> str:
            return Dataset.of(shown, labels, shown, labels).with_features().sha256

        plain = Dataset.of(shown, labels, shown, labels)
        sums = {plain.sha256, checksum()}
        assert checksum() in sums
        monkeypatch.setattr(Edges, "label", "edges-5x5x8 v2")
        sums.add(checksum())
        assert len(sums) == 3

    def test_features_of_ones_own_are_scaled(self) -> None:
        data = Dataset.of_features(rows(6), [0, 1] * 3, 5.0 * rows(6), [0, 1] * 3)
        assert np.array_equal(data.train_inputs(), UnitVectors(37).extract(rows(6)))
        assert data.test_inputs == pytest.approx(data.train_inputs(), abs=1e-6)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"train_features": np.zeros((4, 2, 2))}, "train_features is float64 values of shape"),
            ({"train_features": np.zeros((4, 3), np.int64)}, "give floats of shape"),
            ({"train_features": np.full((4, 3), np.nan)}, "NaN or infinite values: give finite"),
            ({"test_features": np.full((2, 3), np.inf)}, "give finite numbers only"),
            ({"test_features": np.zeros((2, 4))}, "test_features is 4 numbers a record: give 3"),
            ({"train_labels": [0, 1, 0]}, "3 labels: give one label for each of the 4 train"),
            ({"test_labels": [0]}, "1 labels: give one label for each of the 2 test"),
            ({"train_labels": [2] * 4}, "class 2 alone: give records of at least two classes"),
            ({"train_features": np.zeros((1, 3)), "train_labels": [1]}, "a single record"),
            ({"train_features": np.zeros((0, 3)), "train_labels": []}, "give at least one"),
            ({"train_labels": [0.5] * 4}, "whole numbers"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, changes: dict[str, Any], words: str) -> None:
        given = {
            "train_features": np.zeros((4, 3)), "train_labels": [0, 1, 0, 1],
            "test_features": np.zeros((2, 3)), "test_labels": [0, 1],
        }  # fmt: skip
        with pytest.raises(BadInput, match=words) as problem:
            Dataset.of_features(**given | changes)
        assert "\n" not in str(problem.value)

    def test_pictures_of_another_shape_are_refused(self) -> None:
        wide = np.zeros((4, 28, 20), np.uint8)
        with pytest.raises(BadInput, match=r"data is items of 28 x 20: give square grey pictures"):
            Dataset.of(wide, [0, 1, 0, 1], wide, [0, 1, 0, 1]).with_features()
