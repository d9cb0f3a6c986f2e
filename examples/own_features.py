"""Bring features of your own: any fixed numbers of each record, such as embeddings.

    python examples/own_features.py

Here a frozen function looks at MNIST's images through 64 random 5 x 5 filters and makes 256 numbers
of each. In your own work it would be a pre-trained network that never saw the owners' data. Nothing
is fitted to the records: each image's features follow from that image alone, so they cost no
privacy. The linear model on them is trained from Python, and the features are written to a folder
for the command line. Needs NumPy only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import noisemarket as nm

OWNERS, RECORDS, TESTED = 20, 12_000, 2_000
FILTERS = np.random.default_rng(7).normal(size=(25, 64)).astype(np.float32)
FILTERS -= FILTERS.mean(axis=0)  # a filter answers to edges, not to brightness


def embed(images: np.ndarray) -> np.ndarray:
    """256 numbers of each image: the mean answer of each filter in each quarter."""
    made = np.empty((len(images), 256), np.float32)
    for start in range(0, len(images), 500):
        pixels = images[start : start + 500, ::2, ::2].astype(np.float32) / 255.0
        seen = sliding_window_view(pixels, (5, 5), axis=(1, 2)).reshape(-1, 10, 10, 25)
        answers = np.maximum(seen @ FILTERS, 0.0)
        quarters = answers.reshape(-1, 2, 5, 2, 5, 64).mean(axis=(2, 4))
        quarters -= quarters.mean(axis=-1, keepdims=True)  # over the filters of this image
        made[start : start + 500] = quarters.reshape(-1, 256)
    return made


def main(folder: str = "") -> None:
    """Train under noise, and write the features to a folder if one is named."""
    mnist = nm.load_data()
    parts = {
        "train-features": embed(mnist.train_images[:RECORDS]),
        "train-labels": mnist.train_labels[:RECORDS],
        "test-features": embed(mnist.test_images[:TESTED]),
        "test-labels": mnist.test_labels[:TESTED],
    }
    data = nm.Dataset.of_features(*parts.values(), name="random filters")
    scenario = nm.Scenario.from_preset("market", owners=OWNERS, rounds=15)
    for sigma in (0.3, 0.05):
        trained = nm.train(scenario, sigma=sigma, data=data)
        statement = trained.statements[0]
        print(f"sigma {sigma}: {trained.accuracy:.1f} %, epsilon {statement.epsilon:.2f}")

    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, array in parts.items():
            np.save(Path(folder) / f"{name}.npy", array)
        print("The whole market on them:")
        print(f"    noisemarket run --set data={folder} --set owners={OWNERS} --out runs/features")
    else:
        print("To keep the features: python examples/own_features.py FOLDER")


if __name__ == "__main__":  # training starts processes that import this file
    main(*sys.argv[1:2])
