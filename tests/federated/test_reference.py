"""The curator's own records: apart from the owners', and where they would have a model go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny_images import write_images

from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.reference import Directions, set_aside
from noisemarket.federated.weighting import capped


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_data(write_images(tmp_path_factory.mktemp("mnist"), 120, 40)).with_features()


def test_reference_records_are_nobody_elses(data: Dataset) -> None:
    left, own = set_aside(data, 30, np.random.default_rng(1))
    assert (len(left.train_labels), len(own)) == (90, 30)
    dealt = {row.tobytes() for row in left.train_inputs()}
    kept = {row.tobytes() for row in own.inputs}
    assert not dealt & kept
    assert dealt | kept == {row.tobytes() for row in data.train_inputs()}
    assert left.test_images is data.test_images
    assert left.sha256 != data.sha256


def test_directions_are_the_gradients_of_each_class_and_of_all(data: Dataset) -> None:
    _, own = set_aside(data, 40, np.random.default_rng(2))
    maker = LinearMaker(10, own.inputs.shape[1])
    weights = np.random.default_rng(3).normal(size=10 * own.inputs.shape[1])
    rows = Directions(maker, 1, own).at(weights)
    assert len(rows) == len(np.unique(own.labels)) + 1
    matrix = weights.reshape(10, -1)
    scores = own.inputs @ matrix.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    lacking = np.eye(10)[own.labels] - shares
    groups = [own.labels == label for label in np.unique(own.labels)] + [np.ones(40, bool)]
    for row, group in zip(rows, groups, strict=True):
        wanted = lacking[group].T @ own.inputs[group] / group.sum()
        assert row == pytest.approx(wanted.reshape(-1), abs=1e-5)
    # The direction of all is the mean of the classes', by their frequencies.
    counts = np.array([group.sum() for group in groups[:-1]])
    assert rows[-1] == pytest.approx(counts @ rows[:-1] / 40, abs=1e-5)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_no_weight_passes_the_cap_and_others_stay(given: list[float], cap: float) -> None:
    weights = np.array(given)
    lowered = capped(weights, cap)
    share = lowered / lowered.sum()
    assert share.max() <= max(cap, 1.0 / len(weights)) * (1 + 1e-9)
    if cap * len(weights) > 1.0:
        assert (lowered <= weights * (1 + 1e-12)).all()
        below = share < cap * (1 - 1e-9)
        assert lowered[below] == pytest.approx(weights[below])  # only the largest are lowered
