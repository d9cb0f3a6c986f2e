"""A ``torch.nn.Module`` whose parameters lie in one flat vector."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from noisemarket.errors import BadInput
from noisemarket.federated.models.torch_clipping import by_layers, by_vmap


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
        parameters = [p for p in module.parameters() if p.requires_grad]
        size = sum(p.numel() for p in parameters)
        if size == 0:
            raise BadInput("model", type(module).__name__, "give a model with parameters.")
        self.weights = torch.empty(size)
        self.gradient = torch.zeros(size)
        at = 0
        for parameter in parameters:
            here = slice(at, at + parameter.numel())
            view = shaped(self.weights[here], parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = shaped(self.gradient[here], parameter.shape)
            at = here.stop
        self._single_examples = False  # whether clipping has to run the model on single examples
        module.train()

    def __len__(self) -> int:
        return self.weights.numel()

    def layers(self) -> dict[str, slice]:
        """Where each parameter lies in the flat vector."""
        out, at = {}, 0
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                out[name] = slice(at, at + parameter.numel())
                at += parameter.numel()
        return out

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
        slices = self.layers()
        if not self._single_examples:
            summed = by_layers(self.module, slices, images, labels, clip)
            if summed is not None:
                return summed
            self._single_examples = True
        return by_vmap(self.module, slices, images, labels, clip)

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
