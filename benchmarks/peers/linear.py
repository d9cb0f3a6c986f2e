"""The linear model on fixed features, as ``benchmarks/features.py`` has everybody train it.

A round, whoever trains it: every owner cuts its 600 records into 64 shards, each shard takes one
step of softmax regression, the steps are cut to length 1, their mean gets noise, and the model
moves by ``SERVER_RATE`` times the owners' mean.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.task import Task, load, shares

SIGMA, SHARDS, CLIP, LOCAL_RATE = 0.6, 64, 1.0, 60.0
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
    """An owner's protected update in plain NumPy, one shard after another."""
    total = np.zeros_like(weights)
    for shard in range(SHARDS):
        rows, marks = features[shard::SHARDS], labels[shard::SHARDS]
        scores = rows @ weights.T
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(marks)), marks] -= 1.0
        step = (-LOCAL_RATE / len(marks)) * (chances.T @ rows)
        total += step * min(1.0, CLIP / max(float(np.linalg.norm(step)), 1e-12))
    drawn = noise.standard_normal(weights.shape, np.float32)
    made: Floats = total / np.float32(SHARDS) + np.float32(SIGMA) * drawn
    return made
