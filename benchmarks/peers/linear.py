"""The linear model on fixed features, as everybody trains it in ``engine`` and ``features``.

A round, whoever trains it: every record takes one step of softmax regression, the steps are cut to
length 1, an owner's mean gets noise, and the model moves by ``SERVER_RATE`` times the owners' mean.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.task import Task, load, shares

SIGMA, CLIP, LOCAL_RATE = 0.6, 1.0, 8.0
SERVER_RATE = 6.0
"""What ``noisemarket.federated.aggregation`` chooses for 100 owners at ``SIGMA``, momentum 0."""

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


@functools.cache
def owned(owners: int, each: int) -> list[tuple[Floats, Labels]]:
    """Every owner's features and labels, computed once per process."""
    task = Task(owners=owners, each=each)
    data = load(task).with_features()
    features = data.train_inputs()
    return [(features[part], data.train_labels[part]) for part in shares(task)]


def accuracy(weights: Floats, task: Task) -> float:
    """Test accuracy in per cent of weights (classes, features)."""
    data = load(task).with_features()
    right = (data.test_inputs @ weights.T).argmax(axis=1) == data.test_labels
    return 100.0 * float(right.mean())


def update(weights: Floats, features: Floats, labels: Labels, noise: np.random.Generator) -> Floats:
    """An owner's protected update in plain NumPy; no record's step is formed."""
    scores = features @ weights.T
    wrong = np.exp(scores - scores.max(axis=1, keepdims=True))
    wrong /= wrong.sum(axis=1, keepdims=True)
    wrong[np.arange(len(labels)), labels] -= 1.0
    lengths = LOCAL_RATE * np.linalg.norm(wrong, axis=1) * np.linalg.norm(features, axis=1)
    wrong *= np.minimum(1.0, CLIP / np.maximum(lengths, 1e-12))[:, None]
    drawn = noise.standard_normal(weights.shape, np.float32)
    made: Floats = np.float32(-LOCAL_RATE / len(labels)) * (wrong.T @ features)
    return made + np.float32(SIGMA) * drawn
