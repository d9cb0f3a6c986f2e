"""The gradient of every record is clipped: the paper's own formula with the owner's own X_n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisemarket.federated.models.linear import CANCELLED
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.privacy.noise import add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours, sharded_sensitivity

_UNIT = 2.0**-53  # unit roundoff of double precision


@dataclass(frozen=True)
class PerRecord(Protection):
    """Each record's step is cut to norm ``clip``; their mean gets the noise, once a round.

    A step is ``rate`` times the gradient. Where there are several ``records_per_shard``, the step
    is that of the mean gradient of a shard; record i stands in shard i modulo their number,
    whatever the data. With X_n shards the sensitivity is 2 clip / X_n, and rho = 2 clip^2 / (X_n^2
    sigma^2) a round: the paper's formula with L = clip. The more records an owner has, the less a
    round costs it; an owner of a single record still has a guarantee, with a very large epsilon.

    Example:
        >>> PerRecord().sensitivity(0, 600, Neighbours.REPLACE_ONE)
        0.0033333333333333335
    """

    records_per_shard: int = 1
    clip: float = 1.0
    rate: float = 5.0
    name = "per_record"
    scenario_keys: ClassVar = {
        "records_per_shard": "privacy.records_per_shard",
        "clip": "privacy.clip",
        "rate": "privacy.shard_rate",
    }
    stated = ("shards",)

    def shards(self, records: int) -> int:
        """X_n, the number of clipped updates that an owner's upload is the mean of."""
        return max(1, -(-records // self.records_per_shard))

    parts = shards

    def upload(self, task: UploadTask) -> Upload:
        shards = self.shards(len(task.records))
        settings = shards, self.rate, self.clip
        total = task.model.clipped_steps(task.start, task.records, *settings)
        # In double precision until the noise is on: rounding before it would have to be charged.
        return add_noise(total / shards, task.sigma, task.noise).astype(np.float32)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        rounding = rounding_reach(dimension)
        if dimension:
            # A sum of n terms is off by at most n units of the sum of their norms.
            longest = self.clip if self.records_per_shard == 1 else self.clip / CANCELLED
            rounding += 2.0 * (records + 8) * _UNIT * longest
        return sharded_sensitivity(self.clip, self.shards(records), neighbours, rounding)

    def protects(self, neighbours: Neighbours) -> str:
        if neighbours is Neighbours.ZERO_OUT and self.records_per_shard > 1:
            return "one record, zeroed out together with the clipped update of its shard"
        return super().protects(neighbours)

    def reach(self, records: int) -> float:
        return self.clip
