"""How close the Dirichlet partition comes to its draws: the table of docs/explanation/data.md."""

from __future__ import annotations

import numpy as np

from noisemarket.federated.data_files import load_data
from noisemarket.federated.partition import dirichlet_partition, label_entropy

OWNERS, BETAS, SEEDS = (10, 100, 1000), (0.05, 0.1, 0.5, 1, 5, 20), range(20)


def row(labels: np.ndarray, owners: int, beta: float) -> str:
    """Means over seeds: least distance, distance, entropy drawn and achieved."""
    figures = []
    for seed in SEEDS:
        dealt = dirichlet_partition(labels, owners, beta, np.random.default_rng(seed))
        achieved = dealt.label_counts(labels) / dealt.sizes[:, None]
        change = achieved - dealt.target
        least = np.abs(change.sum(axis=0)).sum() / 2 / owners
        distance = np.abs(change).sum(axis=1).mean() / 2
        entropies = (label_entropy(shares).mean() for shares in (dealt.target, achieved))
        figures.append((least, distance, *entropies))
    values = " | ".join(f"{value:.3f}" for value in np.mean(figures, axis=0))
    return f"| {owners:,} | {beta:g} | {values} |"


def main() -> None:
    for owners in OWNERS:
        for beta in BETAS:
            print(row(load_data().train_labels, owners, beta))


if __name__ == "__main__":
    main()
