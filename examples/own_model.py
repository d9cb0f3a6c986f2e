"""Train a model of your own on arrays of your own, each owner under its own noise.

    python examples/own_model.py

Twelve owners hold records of 20 numbers and a label each, made up here. Half of the owners add
three times the noise of the others. The last lines say what each kind of owner gave up.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import noisemarket as nm

OWNERS, FEATURES = 12, 20


class MLP(nn.Module):
    """Two layers. Workers import this file, so the class stands at its top level."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, 3)
        )  # fmt: skip

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Scores of the three classes."""
        scores: torch.Tensor = self.layers(records)
        return scores


def records(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records with a label that depends on the product of two features and on a third."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, FEATURES))
    score = features[:, 0] * features[:, 1] + features[:, 2]
    return features, np.digitize(score, [-0.7, 0.7])


def main() -> None:
    """Train for 8 rounds and say how good the model is and what it cost."""
    data = nm.Dataset.of(*records(12_000, seed=1), *records(2_000, seed=2), name="synthetic")
    scenario = nm.Scenario.from_preset("market", owners=OWNERS, beta=1.0, rounds=8)
    result = nm.train(
        scenario,
        data=data,
        model=MLP,
        protection=nm.Sharded(records_per_shard=12, clip=1.0, steps=4, rate=1.0),
        sigma=[0.1 if owner % 2 else 0.3 for owner in range(OWNERS)],
        watch=lambda done: print(f"round {done.number:2}: {done.score.accuracy:.1f} %"),
    )
    model = result.module()  # an MLP with the trained weights, for data.ready(features)
    features, labels = records(1_000, seed=3)
    with torch.no_grad():
        guesses = model(torch.from_numpy(data.ready(features))).argmax(1).numpy()
    print(f"new records: {100 * np.mean(guesses == labels):.1f} % right")
    for owner in (0, 1):
        print(result.statements[owner].text())


if __name__ == "__main__":  # training starts processes that import this file
    main()
