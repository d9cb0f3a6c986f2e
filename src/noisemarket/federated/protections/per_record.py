"""The step of every record is clipped: the paper's own formula with the owner's own X_n."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisemarket.federated.models.linear import SINGLE, SUMMED
from noisemarket.federated.protections.protection import Upload, UploadTask
from noisemarket.federated.protections.sharded import ShardMean
from noisemarket.privacy.noise import add_noises
from noisemarket.privacy.zcdp import Neighbours

_UNIT = 2.0**-53  # unit roundoff of double precision


@dataclass(frozen=True)
class PerRecord(ShardMean):
    """Each record's step is cut to norm ``clip``; their mean gets the noise, once a round.

    A step is ``rate`` times the gradient. The more records an owner has, the less a round costs it.
    An owner of a single record has a guarantee too, with a very large epsilon.

    Example:
        >>> PerRecord().sensitivity(0, 600, Neighbours.REPLACE_ONE)
        0.0033333333333333335
    """

    clip: float = 1.0
    rate: float = 8.0
    name = "per_record"
    records_per_shard = 1
    scenario_keys: ClassVar = {"clip": "privacy.clip", "rate": "privacy.shard_rate"}

    def upload(self, task: UploadTask) -> Upload:
        [upload] = self.uploads([task])
        return upload

    def uploads(self, tasks: Sequence[UploadTask]) -> Iterable[Upload]:
        shards = [self.shards(len(task.records)) for task in tasks]
        lot = [task.records for task in tasks]
        totals = tasks[0].model.record_steps(tasks[0].start, lot, self.rate, self.clip)
        means = np.array([total / parts for total, parts in zip(totals, shards, strict=True)])
        sigmas, sources = [task.sigma for task in tasks], [task.noise for task in tasks]
        # In double precision until the noise is on: rounding before it would have to be charged.
        return add_noises(means, sigmas, sources).astype(np.float32)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        ideal = super().sensitivity(dimension, records, neighbours)
        if dimension == 0:
            return ideal
        # A sum of n terms is off by at most n units of the sum of their norms.
        return ideal + 2.0 * ((records + 8) * _UNIT + (SUMMED + 8) * SINGLE) * self.clip
