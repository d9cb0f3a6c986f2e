"""Sharded training: a true guarantee per record by the paper's own formula, for any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.models.model import clipped_sum
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.privacy.noise import NoiseSource, add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours, sharded_sensitivity


class ShardMean(Protection):
    """The mean of the clipped updates of an owner's shards, with the noise added once.

    A record stands in one shard (its index modulo their number X_n, whatever the data), whose share
    of the mean has norm at most ``clip / X_n``. So the sensitivity is 2 clip / X_n, and rho = 2
    clip^2 / (X_n^2 sigma^2) a round: the paper's formula with L = clip and the owner's own X_n.
    """

    records_per_shard: int
    clip: float
    stated = ("shards",)

    def shards(self, records: int) -> int:
        """X_n, the number of clipped updates that an owner's upload is the mean of."""
        return max(1, -(-records // self.records_per_shard))

    parts = shards

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        shards, rounding = self.shards(records), rounding_reach(dimension)
        return sharded_sensitivity(self.clip, shards, neighbours, rounding)

    def whole_owner(self, records: int) -> bool:
        """A single shard is all that the owner has, and may be replaced as a whole."""
        return self.records_per_shard > 1 and self.shards(records) == 1

    def protects(self, neighbours: Neighbours, records: int) -> str:
        several = self.records_per_shard > 1 and not self.whole_owner(records)
        if neighbours is Neighbours.ZERO_OUT and several:
            # Retraining the shard without the record is not covered: that can move it all the way.
            return "one record, zeroed out together with the clipped update of its shard"
        return super().protects(neighbours, records)

    def reach(self, records: int) -> float:
        return self.clip


@dataclass(frozen=True)
class Sharded(ShardMean):
    """Disjoint shards train freely; each update is cut to norm ``clip``; their mean gets the noise.

    With at least as many ``records_per_shard`` as an owner has records there is one shard, and the
    owner's whole data is hidden. So ``protect_whole`` serves any training, as of a Flower app.

    Example:
        >>> Sharded(records_per_shard=10, clip=1.0).sensitivity(0, 640, Neighbours.REPLACE_ONE)
        0.03125
    """

    records_per_shard: int = 10
    clip: float = 1.0
    steps: int = 2
    rate: float = 0.2
    name = "sharded"
    scenario_keys: ClassVar = {
        "records_per_shard": "privacy.records_per_shard",
        "clip": "privacy.clip",
        "steps": "shard_steps",
        "rate": "privacy.shard_rate",
    }

    def upload(self, task: UploadTask) -> Upload:
        shards, total = self.shards(len(task.records)), np.zeros(len(task.start))
        settings = shards, self.steps, self.rate
        for updates in task.model.shard_updates(task.start, task.records, *settings):
            total += clipped_sum(updates, self.clip)
        # In double precision until the noise is on: rounding before it would have to be charged.
        return add_noise(total / shards, task.sigma, task.noise).astype(np.float32)

    def protect_whole(
        self, update: NDArray[Any], sigma: float, noise: NoiseSource
    ) -> NDArray[np.float64]:
        """Protect an update, however it was trained, as that of a single shard."""
        return add_noise(clipped_sum(update[None], self.clip), sigma, noise)
