"""DP-SGD inside a local epoch: every example's gradient is clipped, every step gets noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.privacy.noise import add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours, dp_sgd_sensitivity

_UNIT = 2.0**-24  # unit roundoff of single precision


@dataclass(frozen=True)
class DPSGD(Protection):
    """Disjoint batches; each example's gradient is cut to norm ``clip``; noise goes on each step.

    ``sigma`` is the total noise on the model: each of the T steps gets sigma / sqrt(T). Batches are
    disjoint, so a record moves one step only. Records beyond the last full batch sit a round out.

    Example:
        >>> DPSGD(batch=64).step_count(records=600)
        9
    """

    batch: int = 64
    rate: float = 0.05
    clip: float = 1.0
    name = "dp_sgd"
    scenario_keys: ClassVar = {
        "batch": "training.batch",
        "rate": "local_rate",
        "clip": "privacy.clip",
    }
    stated = ("reach",)
    noise_in_steps = True

    def step_count(self, records: int) -> int:
        """How many steps, one for each full batch, an owner of so many records makes."""
        return max(1, records // self.batch)

    def parts(self, records: int) -> int:
        return self.batch

    @np.errstate(over="ignore", invalid="ignore")
    def upload(self, task: UploadTask) -> Upload:
        records, steps = task.records, self.step_count(len(task.records))
        order, weights = task.rng.permutation(len(records)), task.start.copy()
        for step in range(steps):
            batch = records.take(order[step * self.batch : (step + 1) * self.batch])
            summed = task.model.clipped_gradient(weights, batch, self.clip)
            move = summed * np.float32(-self.rate / self.batch)
            weights += add_noise(move, task.sigma / math.sqrt(steps), task.noise)
        return weights - task.start

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        rounding = rounding_reach(dimension) + (self.summing_reach() if dimension else 0.0)
        if math.isinf(rounding):
            return math.inf  # so many terms that single precision bounds nothing
        steps = self.step_count(records)
        return dp_sgd_sensitivity(self.clip, self.batch, steps, self.rate, neighbours, rounding)

    def summing_reach(self) -> float:
        """How much farther apart two steps can be because gradients are added in single precision.

        A sum of n terms, each scaled before and the whole after, is off by at most gamma times the
        sum of the terms' norms, with gamma = (n + 4) u / (1 - (n + 4) u) and u = 2^-24. That sum is
        at most n clip, and both neighbours may be off.
        """
        off = (self.batch + 4) * _UNIT
        gamma = off / (1.0 - off) if off < 1.0 else math.inf
        return 2.0 * self.rate * self.clip * gamma

    def reach(self, records: int) -> float:
        return self.step_count(records) * self.rate * self.clip
