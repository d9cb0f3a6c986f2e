"""The linear model in PyTorch, one owner after another: a loop over shards, or all at once.

``shards=loop`` is how one writes it first: autograd and a step for each shard. ``shards=batched``
is how one writes it when that is too slow: the shards of an owner as one batched product.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.peers import linear
from benchmarks.peers.task import Rounds, Task, say

Own = tuple[torch.Tensor, torch.Tensor]


def _one_by_one(weights: torch.Tensor, own: list[Own]) -> torch.Tensor:
    total = torch.zeros_like(weights)
    for features, labels in own:
        local = weights.clone().requires_grad_()
        loss = functional.cross_entropy(features @ local.T, labels)
        (gradient,) = torch.autograd.grad(loss, local)
        step = -linear.LOCAL_RATE * gradient
        total += step * torch.clamp(linear.CLIP / step.norm(), max=1.0)
    return total


def _batched(weights: torch.Tensor, own: list[Own]) -> torch.Tensor:
    total = torch.zeros_like(weights)
    for features, labels in own:  # (shards, records, features): one entry for each size of shard
        wrong = torch.softmax(features @ weights.T, dim=-1)
        wrong -= functional.one_hot(labels, len(weights))
        steps = (-linear.LOCAL_RATE / features.shape[1]) * torch.bmm(wrong.mT, features)
        lengths = steps.flatten(1).norm(dim=1)
        total += (steps * torch.clamp(linear.CLIP / lengths, max=1.0)[:, None, None]).sum(0)
    return total


def _shards(features: torch.Tensor, labels: torch.Tensor) -> list[Own]:
    cuts = range(linear.SHARDS)
    return [(features[s :: linear.SHARDS], labels[s :: linear.SHARDS]) for s in cuts]


def _stacked(shards: list[Own]) -> list[Own]:
    sizes = sorted({len(labels) for _, labels in shards})
    groups = [[own for own in shards if len(own[1]) == size] for size in sizes]
    return [
        (torch.stack([one for one, _ in group]), torch.stack([marks for _, marks in group]))
        for group in groups
    ]


def main() -> None:
    """Rounds of training and aggregation; option: shards."""
    task = Task.given()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    batched = task.options["shards"] == "batched"
    step: Callable[[torch.Tensor, list[Own]], torch.Tensor] = _batched if batched else _one_by_one
    owners = [
        _shards(torch.tensor(features), torch.tensor(labels))
        for features, labels in linear.owned(task.owners, task.each)
    ]
    if batched:
        owners = [_stacked(shards) for shards in owners]
    weights = torch.zeros(10, owners[0][0][0].shape[-1])
    rounds = Rounds()
    rounds.start()
    for _ in range(task.rounds):
        mean = torch.zeros_like(weights)
        for own in owners:
            upload = step(weights, own) / linear.SHARDS
            mean += upload + linear.SIGMA * torch.randn_like(upload)
        weights = weights + (linear.SERVER_RATE / task.owners) * mean
        rounds.done()
    say(accuracy=linear.accuracy(weights.numpy(), task))


if __name__ == "__main__":
    main()
