"""Clipped updates: whatever the training does, the owner's whole data is hidden."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.protections.paper import SGD_KEYS, local_sgd
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.privacy.noise import NoiseSource, add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours, sharded_sensitivity

_SAFE = 1.0 - 1e-9  # rounding must not take a clipped update beyond its bound


@dataclass(frozen=True)
class Clipped(Protection):
    """Any training; then the whole update is cut to norm ``clip``, and noise is added once.

    That hides the owner's whole data, so ``protect`` also serves a Flower app of one's own.

    Example:
        >>> Clipped(clip=0.5).whole_owner
        True
    """

    clip: float
    batch: int = 64
    rate: float = 0.05
    epochs: int = 1
    name = "clipped"
    scenario_keys: ClassVar = {"clip": "privacy.clip", **SGD_KEYS}
    any_training = True
    whole_owner = True

    def upload(self, task: UploadTask) -> Upload:
        update = local_sgd(task, self.batch, self.rate, self.epochs).astype(np.float64)
        return self.protect(update, task.sigma, task.noise).astype(np.float32)

    def protect(self, update: NDArray[Any], sigma: float, noise: NoiseSource) -> NDArray[Any]:
        return add_noise(clipped(update, self.clip), sigma, noise)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        return sharded_sensitivity(self.clip, 1, neighbours, rounding_reach(dimension))

    def reach(self, records: int) -> float:
        return self.clip


def clipped(update: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """The update, cut to norm ``clip``; one that is not finite counts for nothing."""
    scale = float(np.abs(update).max(initial=0.0))
    if not math.isfinite(scale) or scale == 0.0:
        return np.zeros_like(update)
    length = scale * math.sqrt(float(np.square(update / scale).sum()))
    if not math.isfinite(length):
        return np.zeros_like(update)
    return update if length <= clip * _SAFE else update * (clip * _SAFE / length)
