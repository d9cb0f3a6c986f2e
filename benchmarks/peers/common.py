"""What all contestants share: the same images, the same owners, one way to report."""

from __future__ import annotations

import functools
import json
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_mnist
from noisemarket.federated.models.cnn import CNN

BATCH, RATE, CENTRAL_BATCH = 64, 0.05, 6400


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
    """MNIST, with as many training images as the task has."""
    data = load_mnist()
    images = task.owners * task.each
    return Dataset.of(
        data.train_images[:images], data.train_labels[:images], data.test_images, data.test_labels,
        scaling=data.scaling,
    )  # fmt: skip


def shares(task: Task) -> list[NDArray[np.int64]]:
    """Which images each owner holds: equal parts of a fixed order."""
    order = np.random.default_rng(0).permutation(task.owners * task.each)
    return [np.sort(part) for part in np.array_split(order, task.owners)]


def tensors(data: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """All training images as (images, 1, 28, 28), normalised, and their labels."""
    images = (torch.tensor(data.train_images, dtype=torch.float32) / 255.0 - 0.1307) / 0.3081
    return images[:, None], torch.tensor(data.train_labels)


def first_model() -> CNN:
    """The network that every contestant starts from."""
    torch.manual_seed(1)
    return CNN()


@functools.cache
def owned(owners: int, each: int) -> list[TensorDataset]:
    """Every owner's images and labels, loaded once per process."""
    task = Task(owners=owners, each=each)
    images, labels = tensors(load(task))
    return [TensorDataset(images[part], labels[part]) for part in shares(task)]


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


def accuracy(model: torch.nn.Module, data: Dataset) -> float:
    """Test accuracy in per cent: shows that a contestant really trained."""
    images = (torch.tensor(data.test_images, dtype=torch.float32) / 255.0 - 0.1307) / 0.3081
    with torch.no_grad():
        right = model(images[:, None]).argmax(1) == torch.tensor(data.test_labels)
    return 100.0 * float(right.float().mean())
