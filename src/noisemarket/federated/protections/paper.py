"""The paper's protection: train a local epoch, add noise once. It guarantees nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from noisemarket.federated.model import FlatModel
from noisemarket.federated.protections.protection import Protection, Records, Upload
from noisemarket.privacy.noise import NoiseSource, add_noise
from noisemarket.privacy.zcdp import Neighbours


@dataclass(frozen=True)
class Paper(Protection):
    """Mini-batch SGD over the owner's data, then Gaussian noise on the local model.

    The paper accounts for it by the sensitivity of a single clipped gradient. But a changed record
    changes the first step and, through it, every later one; and no gradient is clipped. So there is
    no bound, and the privacy statement says that nothing is guaranteed.
    """

    batch: int = 64
    rate: float = 0.05
    epochs: int = 1
    name = "paper"

    def upload(
        self,
        model: FlatModel,
        start: torch.Tensor,
        records: Records,
        sigma: float,
        noise: NoiseSource,
        rng: np.random.Generator,
    ) -> Upload:
        model.weights.copy_(start)
        for _ in range(self.epochs):
            order = torch.from_numpy(rng.permutation(len(records)))
            images, labels = records.images[order], records.labels[order]
            for at in range(0, len(records), self.batch):
                part = slice(at, at + self.batch)
                model.descend(images[part], labels[part], self.rate)
        return add_noise((model.weights - start).numpy(), sigma, noise)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        return math.inf

    def passes(self, records: int) -> float:
        return float(self.epochs)
