"""The model that is trained: the paper's 4-layer CNN, or any ``torch.nn.Module``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, MissingExtra

try:
    import torch
    from torch import nn
    from torch.nn import functional

    from noisemarket.federated.clipping import by_layers, by_vmap
except ModuleNotFoundError as missing:
    raise MissingExtra("Training", "cnn") from missing

ModelMaker = Callable[[], nn.Module]
Downsampling = Literal["pool", "stride"]


class CNN(nn.Module):
    """Two convolutions and two fully connected layers, for square images of one channel.

    The paper says no more than "4-layer CNN". With the default widths on 28 x 28 images it has
    80,202 parameters. Under a privacy protection the number of parameters is what noise acts on:
    the narrower the model, the less noise enters, so the widths are settings of a scenario.
    ``downsampling`` halves the sides after each convolution: ``pool`` takes the largest of four,
    ``stride`` computes only every second place, which takes a third of the time. ``normalise``
    brings what each hidden layer passes on to mean 0 and deviation 1 within an image, without any
    parameter: training then takes longer steps, and noise in the weights does less harm.
    """

    def __init__(
        self,
        channels: tuple[int, int] = (16, 32),
        hidden: int = 128,
        classes: int = 10,
        side: int = 28,
        kernel: int = 5,
        downsampling: Downsampling = "pool",
        normalise: bool = False,
    ) -> None:
        super().__init__()
        stride = 2 if downsampling == "stride" else 1
        left = side
        for _ in channels:
            left = (left - kernel + stride) // 2
        if left < 1:
            raise BadInput("side", side, f"images must be at least {3 * kernel + 1} pixels wide.")
        self.first = nn.Conv2d(1, channels[0], kernel, stride)
        self.second = nn.Conv2d(channels[0], channels[1], kernel, stride)
        self.pools, self.normalise = stride == 1, normalise
        self.inner = nn.Linear(channels[1] * left * left, hidden)
        self.outer = nn.Linear(hidden, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Class scores of a batch of images (batch, 1, side, side)."""
        seen = images
        for layer in (self.first, self.second):
            seen = functional.relu(self._even(layer(seen)))
            if self.pools:
                seen = functional.max_pool2d(seen, 2)
        out: torch.Tensor = self.outer(functional.relu(self._even(self.inner(seen.flatten(1)))))
        return out

    def _even(self, seen: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(seen, seen.shape[1:]) if self.normalise else seen


def cnn_of(settings: Mapping[str, Any]) -> CNN:
    """The CNN of settings that may have come as JSON, such as ``cnn_settings`` gives."""
    pair = {"channels": tuple(map(int, settings["channels"]))} if "channels" in settings else {}
    return CNN(**{**settings, **pair})


def cnn_settings(maker: ModelMaker) -> dict[str, Any]:
    """All settings of the CNN that ``maker`` makes, as plain values for JSON.

    Raises:
        BadInput: it makes another model.
    """
    if not isinstance(maker, partial) or maker.func is not CNN:
        remedy = "is not the scenario's CNN: give settings that your own app builds it from."
        raise BadInput("model", type(maker).__name__, remedy)
    given = signature(CNN).bind(*maker.args, **maker.keywords).arguments
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


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


def first_weights(model: ModelMaker, seed: int) -> NDArray[np.float64]:
    """The parameters that a model starts from, flat."""
    return seeded(model, seed).weights.numpy().astype(np.float64)


def seeded(model: ModelMaker, seed: int) -> FlatModel:
    """A model as every worker makes it, also where its parameters are drawn and not trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FlatModel(model())


def tensor(images: NDArray[np.float32]) -> torch.Tensor:
    """Images that are ready for a model, laid out as its convolutions run fastest."""
    ready = torch.from_numpy(images)
    if ready.dim() == 4:
        ready = ready.contiguous(memory_format=torch.channels_last)
    return ready


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
