"""What every contestant is given and how it reports; needs no torch."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data


@dataclass(frozen=True)
class Task:
    """What to train: so many owners with so many images each, for so many rounds."""

    owners: int = 100
    each: int = 600
    rounds: int = 3
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def given(cls) -> Task:
        """The task that the driver wrote on the command line."""
        return cls(**json.loads(sys.argv[1]))


def load(task: Task) -> Dataset:
    """MNIST, with as many training images as the task has, or all there are."""
    data = load_data()
    images = task.owners * task.each
    return Dataset.of(
        data.train_images[:images], data.train_labels[:images], data.test_images, data.test_labels,
        scaling=data.scaling,
    )  # fmt: skip


def shares(task: Task) -> list[NDArray[np.int64]]:
    """Which images each owner holds: equal parts of a fixed order."""
    order = np.random.default_rng(0).permutation(task.owners * task.each)
    return [np.sort(part) for part in np.array_split(order, task.owners)]


class Rounds:
    """Says how long each round took: the first from ``start``, others from the end of the last."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._number = 0

    def start(self) -> None:
        """Leave out what came before."""
        self._last = time.perf_counter()

    def done(self) -> None:
        """A round has just ended."""
        now = time.perf_counter()
        self._number += 1
        say(round=self._number, seconds=now - self._last)
        self._last = time.perf_counter()


def say(**values: object) -> None:
    """One line for the driver."""
    print("@" + json.dumps(values), flush=True)
