"""How close the Dirichlet partition comes to its draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, softmax

from noisemarket.federated.data_files import load_data
from noisemarket.federated.partition import (
    FloatArray,
    IntArray,
    Partition,
    dirichlet_partition,
    log_targets,
)

OWNERS, BETAS, SEEDS = (10, 100, 1000), (0.05, 0.1, 0.5, 1, 5, 20), range(20)


def label_counts(partition: Partition, labels: ArrayLike) -> IntArray:
    """How many images of each class each owner holds, (owners, classes)."""
    known = np.asarray(labels)
    columns = int(known.max()) + 1
    return np.array([np.bincount(known[own], minlength=columns) for own in partition.indices])


def targets(labels: ArrayLike, owners: int, beta: ArrayLike, seed: int) -> FloatArray:
    """The label proportions that owners draw in a partition with this seed, (owners, classes)."""
    totals, betas = (
        np.bincount(np.asarray(labels)),
        np.broadcast_to(np.asarray(beta, float), owners),
    )
    drawn: FloatArray = softmax(log_targets(totals, betas, np.random.default_rng(seed)), axis=1)
    return drawn


def label_entropy(counts: ArrayLike) -> FloatArray:
    """Entropy in nats of each row's label proportions: 0 for one class, log Y for Y even ones."""
    values: FloatArray = np.asarray(counts, dtype=float)
    entropy: FloatArray = entr(values / values.sum(axis=1, keepdims=True)).sum(axis=1)
    return entropy


def row(labels: np.ndarray, owners: int, beta: float) -> str:
    """Means over seeds: least distance, distance, entropy drawn and achieved."""
    figures = []
    for seed in SEEDS:
        dealt = dirichlet_partition(labels, owners, beta, np.random.default_rng(seed))
        drawn = targets(labels, owners, beta, seed)
        achieved = label_counts(dealt, labels) / dealt.sizes[:, None]
        change = achieved - drawn
        least = np.abs(change.sum(axis=0)).sum() / 2 / owners
        distance = np.abs(change).sum(axis=1).mean() / 2
        entropies = (label_entropy(shares).mean() for shares in (drawn, achieved))
        figures.append((least, distance, *entropies))
    values = " | ".join(f"{value:.3f}" for value in np.mean(figures, axis=0))
    return f"| {owners:,} | {beta:g} | {values} |"


def main() -> None:
    for owners in OWNERS:
        for beta in BETAS:
            print(row(load_data().train_labels, owners, beta))


if __name__ == "__main__":
    main()
