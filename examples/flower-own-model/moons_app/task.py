"""The model and the data: two moons in the plane, made up here."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

torch.set_num_threads(1)  # a model this small only waits for more


def perceptron() -> nn.Module:
    """A hidden layer; always with the same first weights."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def moons(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points on two half circles, and on which of them each is."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    angle = rng.uniform(0, np.pi, count) + np.pi * labels
    points = np.stack([np.cos(angle) + labels, np.sin(angle) + 0.3 * labels], axis=1)
    points += rng.normal(0, 0.1, points.shape)
    return points.astype(np.float32), labels


def train(model: nn.Module, points: torch.Tensor, labels: torch.Tensor) -> float:
    """Ten steps of gradient descent; gives the last loss."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = torch.tensor(0.0)
    for _ in range(10):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        optimiser.step()
    return float(loss.detach())


def accuracy(model: nn.Module) -> float:
    """The share of new points that are told right."""
    points, labels = moons(500, seed=99)
    with torch.no_grad():
        guesses = model(torch.from_numpy(points)).argmax(1).numpy()
    return float((guesses == labels).mean())
