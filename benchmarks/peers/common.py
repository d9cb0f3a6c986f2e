"""What all contestants share: the same images, the same owners, one way to report."""

from __future__ import annotations

import functools

import torch
from torch.utils.data import TensorDataset

from benchmarks.peers.task import Rounds, Task, load, say, shares
from noisemarket.federated.data import Dataset
from noisemarket.federated.models.cnn import CNN

__all__ = ["BATCH", "CENTRAL_BATCH", "RATE", "Rounds", "Task", "accuracy", "first_model", "load",
           "owned", "say", "shares", "tensors"]  # fmt: skip

BATCH, RATE, CENTRAL_BATCH = 64, 0.05, 6400


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


def accuracy(model: torch.nn.Module, data: Dataset) -> float:
    """Test accuracy in per cent: shows that a contestant really trained."""
    images = (torch.tensor(data.test_images, dtype=torch.float32) / 255.0 - 0.1307) / 0.3081
    with torch.no_grad():
        right = model(images[:, None]).argmax(1) == torch.tensor(data.test_labels)
    return 100.0 * float(right.float().mean())
