"""The linear model in PyTorch, one owner after another: ``STEPS`` by the option ``steps``."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.peers import linear
from benchmarks.peers.task import Rounds, Task, say

Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def one_by_one(weights: torch.Tensor, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As one writes it first: autograd and a step for each record."""
    total = torch.zeros_like(weights)
    for row, label in zip(features, labels, strict=True):
        local = weights.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(functional.cross_entropy(local @ row, label), local)
        step = -linear.LOCAL_RATE * gradient
        total += step * torch.clamp(linear.CLIP / step.norm(), max=1.0)
    return total / len(labels)


def batched(weights: torch.Tensor, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """When that is too slow: all records' steps as one array."""
    wrong = torch.softmax(features @ weights.T, 1) - torch.eye(len(weights))[labels]
    steps = -linear.LOCAL_RATE * torch.bmm(wrong[:, :, None], features[:, None, :])
    shares = torch.clamp(linear.CLIP / steps.flatten(1).norm(dim=1), max=1.0)
    return (steps * shares[:, None, None]).mean(0)


def by_norms(weights: torch.Tensor, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The quickest that we know in PyTorch: norms without forming the steps."""
    wrong = torch.softmax(features @ weights.T, 1) - torch.eye(len(weights))[labels]
    lengths = linear.LOCAL_RATE * wrong.norm(dim=1) * features.norm(dim=1)
    shares = torch.clamp(linear.CLIP / lengths, max=1.0)
    return -linear.LOCAL_RATE / len(labels) * (wrong * shares[:, None]).T @ features


STEPS: dict[str, Step] = {"loop": one_by_one, "batched": batched, "norms": by_norms}


def round_of(
    step: Step, weights: torch.Tensor, own: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """The model after a round of all owners."""
    mean = torch.zeros_like(weights)
    for features, labels in own:
        upload = step(weights, features, labels)
        mean += upload + linear.SIGMA * torch.randn_like(upload)
    return weights + (linear.SERVER_RATE / len(own)) * mean


def main() -> None:
    """Rounds of training and aggregation; option: steps."""
    task = Task.given()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    own = [
        (torch.tensor(features), torch.tensor(labels))
        for features, labels in linear.owned(task.owners, task.each)
    ]
    weights = torch.zeros(10, own[0][0].shape[1])
    rounds = Rounds()
    rounds.start()
    for _ in range(task.rounds):
        weights = round_of(STEPS[task.options["steps"]], weights, own)
        rounds.done()
    say(accuracy=linear.accuracy(weights.numpy(), task))


if __name__ == "__main__":
    main()
