"""The paper's 4-layer CNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, Literal

from noisemarket.errors import BadInput, MissingExtra

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ModuleNotFoundError as missing:
    raise MissingExtra("The CNN", "cnn") from missing

Downsampling = Literal["pool", "stride"]


class CNN(nn.Module):
    """Two convolutions and two fully connected layers, for square images of one channel.

    The paper says no more than "4-layer CNN". ``downsampling`` halves the sides after each
    convolution: ``pool`` takes the largest of four, ``stride`` computes only every second place,
    which takes a third of the time. ``normalise`` brings what each hidden layer passes on to mean 0
    and deviation 1 within an image, without any parameter: noise in the weights then does less
    harm.
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


def cnn_settings(build: Callable[[], nn.Module]) -> dict[str, Any]:
    """All settings of the CNN that ``build`` makes, as plain values for JSON."""
    if not isinstance(build, partial) or build.func is not CNN:
        remedy = "is not the scenario's CNN: give settings that your own app builds it from."
        raise BadInput("model", type(build).__name__, remedy)
    given = signature(CNN).bind(*build.args, **build.keywords).arguments
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
