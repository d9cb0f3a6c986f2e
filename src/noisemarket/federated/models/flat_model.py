"""A ``torch.nn.Module`` whose parameters lie in one flat vector, and how it trains."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from noisemarket.errors import BadInput
from noisemarket.federated.models.model import AT_ONCE
from noisemarket.federated.models.torch_clipping import by_layers, by_vmap

Shards = list[tuple[torch.Tensor, torch.Tensor]]
"""Images and labels of each shard."""


class FlatModel:
    """A module whose parameters, and their gradients, are views of one flat vector each.

    Loading a model, a step of SGD and an update are then single operations on a vector. Weights of
    convolutions are laid out channels-last, which halves the time of small convolutions on a CPU.
    """

    def __init__(self, module: nn.Module) -> None:
        floating = [name for name, buffer in module.named_buffers() if buffer.is_floating_point()]
        if floating:
            raise BadInput(
                "model", floating[0], "running statistics leak outside the account: use GroupNorm."
            )
        self.module = module
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        size = sum(p.numel() for p in trained.values())
        if size == 0:
            raise BadInput("model", type(module).__name__, "give a model with parameters.")
        self.weights, self.gradient = torch.empty(size), torch.zeros(size)
        self.layers: dict[str, slice] = {}
        """Where each parameter lies in the flat vector."""
        at = 0
        for name, parameter in trained.items():
            here = self.layers[name] = slice(at, at + parameter.numel())
            view = shaped(self.weights[here], parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = shaped(self.gradient[here], parameter.shape)
            at = here.stop
        # Found out by the first attempt; it depends on the model only:
        self._single_examples = False  # whether clipping has to run the model on single examples
        self._single_shards = False  # whether shards have to be trained one by one
        module.train()

    def __len__(self) -> int:
        return self.weights.numel()

    def descend(self, images: torch.Tensor, labels: torch.Tensor, rate: float) -> None:
        """One step of SGD on the mean cross-entropy of a batch."""
        self.gradient.zero_()
        torch.autograd.backward(functional.cross_entropy(self.module(images), labels))
        self.weights.add_(self.gradient, alpha=-rate)

    def clipped_gradient(
        self, images: torch.Tensor, labels: torch.Tensor, clip: float
    ) -> torch.Tensor:
        """The sum over examples of their loss gradients, each cut to norm ``clip``, flat.

        An example whose gradient is not finite counts for nothing.
        """
        if not self._single_examples:
            summed = by_layers(self.module, self.layers, images, labels, clip)
            if summed is not None:
                return summed
            self._single_examples = True
        return by_vmap(self.module, self.layers, images, labels, clip)

    def shard_updates(
        self, start: torch.Tensor, shards: Shards, steps: int, rate: float
    ) -> Iterator[torch.Tensor]:
        """What each shard makes of ``start`` in some steps of SGD, less ``start``.

        A step on nine images costs hardly less than one on sixty-four: most of it is the price of
        calling the framework. So shards of one size are trained as one batch, as one more dimension
        of every operation, where the model allows for it. The updates come in groups, one row a
        shard, and not in the shards' order.
        """
        if not self._single_shards:
            can_batch = False
            try:
                for images, labels in _stacks(shards, max(1, AT_ONCE // len(self))):
                    yield self.batched_updates(start, images, labels, steps, rate)
                    can_batch = True
                return
            except (RuntimeError, NotImplementedError):
                if can_batch:  # a model that can do it once can do it always
                    raise
                self._single_shards = True
        yield from self.sequential_updates(start, shards, steps, rate)

    def sequential_updates(
        self, start: torch.Tensor, shards: Shards, steps: int, rate: float
    ) -> Iterator[torch.Tensor]:
        """The same, shard after shard, for any module."""
        for images, labels in shards:
            self.weights.copy_(start)
            for _ in range(steps):
                self.descend(images, labels, rate)
            yield (self.weights - start)[None]

    def batched_updates(
        self,
        start: torch.Tensor,
        images: torch.Tensor,
        labels: torch.Tensor,
        steps: int,
        rate: float,
    ) -> torch.Tensor:
        """The same for shards of one size, stacked; a row of updates for each."""
        shapes = {n: p.shape for n, p in self.module.named_parameters() if p.requires_grad}

        def loss(
            weights: dict[str, torch.Tensor], some: torch.Tensor, right: torch.Tensor
        ) -> torch.Tensor:
            return functional.cross_entropy(functional_call(self.module, weights, (some,)), right)

        def views(flat: torch.Tensor) -> dict[str, torch.Tensor]:
            return {n: shaped(flat[..., self.layers[n]], shape) for n, shape in shapes.items()}

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

    @torch.no_grad()
    def score(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[int, float]:
        """Number of right answers and sum of losses over some images."""
        self.module.eval()
        out = self.module(images)
        self.module.train()
        right = int((out.argmax(1) == labels).sum())
        return right, float(functional.cross_entropy(out, labels, reduction="sum"))


def shaped(flat: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Flat weights as a view of that shape, behind any dimensions that stand before them.

    Weights of a convolution lie channels-last: (out, height, width, in).
    """
    before = flat.shape[:-1]
    if len(shape) != 4:
        return flat.view(*before, *shape)
    out, into, height, width = shape
    here: torch.Tensor = flat.view(*before, out, height, width, into)
    return here.movedim(-1, len(before) + 1)


def _stacks(shards: Shards, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Shards of the same size stacked, ``most`` at a time."""
    sizes: dict[int, Shards] = {}
    for shard in shards:
        sizes.setdefault(len(shard[1]), []).append(shard)
    for alike in sizes.values():
        for at in range(0, len(alike), most):
            images, labels = zip(*alike[at : at + most], strict=True)
            yield torch.stack(images), torch.stack(labels)
