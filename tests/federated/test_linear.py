"""The linear model: gradients against finite differences, clipping, and shards."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noisemarket.federated.models.linear import LinearModel

CLASSES, WIDTH = 3, 5


def some(count: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, WIDTH))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features.astype(np.float32), rng.integers(0, CLASSES, count)


def weights(seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=CLASSES * WIDTH).astype(np.float32)


def mean_loss(flat: NDArray[np.float64], features: NDArray[np.float32], labels: NDArray[np.int64]) -> float:  # fmt: skip  # noqa: E501
    scores = features.astype(float) @ flat.reshape(CLASSES, WIDTH).T
    scores -= scores.max(axis=1, keepdims=True)
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]
    return float(losses.mean())


def slope(flat: NDArray[np.float32], features: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:  # fmt: skip  # noqa: E501
    """The gradient by central differences."""
    at, out = flat.astype(float), np.empty(flat.size)
    for i in range(flat.size):
        step = np.zeros(flat.size)
        step[i] = 1e-5
        rise = mean_loss(at + step, features, labels) - mean_loss(at - step, features, labels)
        out[i] = rise / 2e-5
    return out


@pytest.mark.parametrize("count", [1, 2, 17])
def test_a_step_goes_down_the_slope(count: int) -> None:
    model, (features, labels), start = LinearModel(CLASSES, WIDTH), some(count), weights()
    moved = start.copy()
    model.descend(moved, model.records(features, labels), rate=0.5)
    np.testing.assert_allclose(moved - start, -0.5 * slope(start, features, labels), atol=1e-6)


@pytest.mark.parametrize("clip", [1e-3, 0.3, 100.0])
def test_clipped_gradients_are_those_of_single_records(clip: float) -> None:
    model, (features, labels), start = LinearModel(CLASSES, WIDTH), some(9), weights()
    expected = np.zeros(start.size)
    for i in range(9):
        own = slope(start, features[i : i + 1], labels[i : i + 1])
        expected += own * min(1.0, clip / np.linalg.norm(own))
    found = model.clipped_gradient(start, model.records(features, labels), clip)
    np.testing.assert_allclose(found, expected, atol=2e-5 * max(1.0, clip))


@pytest.mark.parametrize(("count", "shards"), [(12, 4), (13, 4), (3, 8), (7, 7), (5, 1)])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_shard_is_trained_on_its_own_records(count: int, shards: int, steps: int) -> None:
    model, (features, labels), start = LinearModel(CLASSES, WIDTH), some(count), weights()
    parts = list(model.shard_updates(start, model.records(features, labels), shards, steps, 0.7))
    found = np.concatenate(parts)
    expected = []
    for first in range(min(shards, count)):
        own = slice(first, None, shards)
        here = start.astype(float)
        for _ in range(steps):
            here -= 0.7 * slope(here.astype(np.float32), features[own], labels[own])
        expected.append(here - start)
    assert len(found) == len(expected)
    np.testing.assert_allclose(
        sorted(found.tolist()), sorted(np.array(expected).tolist()), atol=2e-5
    )


def test_scores_are_right_and_lose_what_they_lose() -> None:
    model, (features, labels), flat = LinearModel(CLASSES, WIDTH), some(40), weights()
    right, loss = model.score(flat, features, labels)
    guesses = (features @ flat.reshape(CLASSES, WIDTH).T).argmax(axis=1)
    assert right == (guesses == labels).sum()
    assert loss / 40 == pytest.approx(mean_loss(flat.astype(float), features, labels), rel=1e-5)


def test_a_vector_added_to_all_classes_changes_no_answer() -> None:
    model, (features, labels), flat = LinearModel(CLASSES, WIDTH), some(40), weights()
    shifted = flat + np.tile(np.linspace(-1, 1, WIDTH, dtype=np.float32), CLASSES)
    assert model.score(flat, features, labels)[1] == pytest.approx(
        model.score(shifted, features, labels)[1], rel=1e-4
    )
