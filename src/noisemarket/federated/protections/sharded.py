"""Sharded training: a true guarantee per record by the paper's own formula, for any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisemarket.federated.models.model import clipped_sum
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.privacy.noise import add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours, sharded_sensitivity


@dataclass(frozen=True)
class Sharded(Protection):
    """Disjoint shards train freely; each update is cut to norm ``clip``; their mean gets the noise.

    A record stands in one shard (its index modulo their number, whatever the data), whose share of
    the mean has norm at most ``clip / shards``. So the sensitivity is 2 clip / shards, and rho = 2
    clip^2 / (shards^2 sigma^2) a round: the paper's formula with L = clip and X = shards. One shard
    hides the owner's whole data. Empty shards count as zero updates, and the denominator stays.

    Example:
        >>> Sharded(shards=64, clip=1.0).sensitivity(0, 600, Neighbours.REPLACE_ONE)
        0.03125
    """

    shards: int = 64
    clip: float = 1.0
    steps: int = 2
    rate: float = 0.2
    name = "sharded"
    scenario_keys: ClassVar = {
        "shards": "privacy.shards",
        "clip": "privacy.clip",
        "steps": "privacy.shard_steps",
        "rate": "privacy.shard_rate",
    }

    @property
    def whole_owner(self) -> bool:
        return self.shards == 1

    def parts(self, records: int) -> int:
        return self.shards

    def upload(self, task: UploadTask) -> Upload:
        total, settings = np.zeros(len(task.start)), (self.shards, self.steps, self.rate)
        for updates in task.model.shard_updates(task.start, task.records, *settings):
            total += clipped_sum(updates, self.clip)
        # In double precision until the noise is on: rounding before it would have to be charged.
        return add_noise(total / self.shards, task.sigma, task.noise).astype(np.float32)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        return sharded_sensitivity(self.clip, self.shards, neighbours, rounding_reach(dimension))

    def protects(self, neighbours: Neighbours) -> str:
        if neighbours is Neighbours.ZERO_OUT and not self.whole_owner:
            # Retraining the shard without the record is not covered: that can move it all the way.
            return "one record, zeroed out together with the clipped update of its shard"
        return super().protects(neighbours)

    def reach(self, records: int) -> float:
        return self.clip
