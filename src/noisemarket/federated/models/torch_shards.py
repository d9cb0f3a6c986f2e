"""Batched shard training: an owner's shards, from one start, each on its own records.

A step on nine images costs hardly less than one on sixty-four: most of it is the price of calling
the framework. So shards of one size are trained as one batch, as one more dimension of every
operation (``torch.func.vmap``). Models with parts that cannot be batched are trained shard by
shard; which of both a model takes depends on the model only.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakSet

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from noisemarket.federated.models.flat_model import FlatModel, shaped

_AT_ONCE = 2**24  # weights of the shards that are trained at once, which bounds the memory
_not_batchable: WeakSet[FlatModel] = WeakSet()  # models found unable to train shards in batches


def shard_updates(
    model: FlatModel,
    start: torch.Tensor,
    shards: list[tuple[torch.Tensor, torch.Tensor]],
    steps: int,
    rate: float,
) -> Iterator[torch.Tensor]:
    """What each shard (images and labels) makes of ``start`` in some steps of SGD, less ``start``.

    The updates come in groups, one row a shard, and not in the shards' order.
    """
    if model not in _not_batchable:
        can_batch = False
        try:
            for group in _groups(shards, max(1, _AT_ONCE // start.numel())):
                yield batched_updates(model, start, *group, steps, rate)
                can_batch = True
            return
        except (RuntimeError, NotImplementedError):
            if can_batch:  # a model that can do it once can do it always
                raise
            _not_batchable.add(model)
    yield from sequential_updates(model, start, shards, steps, rate)


def _groups(
    shards: list[tuple[torch.Tensor, torch.Tensor]], most: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Shards of the same size stacked, ``most`` at a time."""
    sizes: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for shard in shards:
        sizes.setdefault(len(shard[1]), []).append(shard)
    for alike in sizes.values():
        for at in range(0, len(alike), most):
            images, labels = zip(*alike[at : at + most], strict=True)
            yield torch.stack(images), torch.stack(labels)


def sequential_updates(
    model: FlatModel,
    start: torch.Tensor,
    shards: list[tuple[torch.Tensor, torch.Tensor]],
    steps: int,
    rate: float,
) -> Iterator[torch.Tensor]:
    """The same, shard after shard, for any module."""
    for images, labels in shards:
        model.weights.copy_(start)
        for _ in range(steps):
            model.descend(images, labels, rate)
        yield (model.weights - start)[None]


def batched_updates(
    model: FlatModel,
    start: torch.Tensor,
    images: torch.Tensor,
    labels: torch.Tensor,
    steps: int,
    rate: float,
) -> torch.Tensor:
    """The same for shards of one size, stacked; a row of updates for each."""
    shapes = {n: p.shape for n, p in model.module.named_parameters() if p.requires_grad}
    layers = model.layers()

    def loss(
        weights: dict[str, torch.Tensor], some: torch.Tensor, right: torch.Tensor
    ) -> torch.Tensor:
        return functional.cross_entropy(functional_call(model.module, weights, (some,)), right)

    def views(flat: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: shaped(flat[..., layers[name]], shape) for name, shape in shapes.items()}

    moved = torch.zeros(len(labels), start.numel())
    changes = views(moved)
    at_start = views(start)
    for step in range(steps):
        shared = step == 0  # all begin with the same weights
        weights = at_start if shared else {n: at_start[n] + changes[n] for n in shapes}
        each = vmap(grad(loss), in_dims=(None if shared else 0, 0, 0), randomness="different")
        gradients: dict[str, torch.Tensor] = each(weights, images, labels)
        for name, gradient in gradients.items():
            changes[name].sub_(gradient, alpha=rate)
    return moved
