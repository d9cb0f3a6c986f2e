"""Models and protections that fail, hang or diverge. Without torch: workers import this file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisemarket.federated.models.linear import LinearMaker, LinearModel
from noisemarket.federated.models.model import Flat
from noisemarket.federated.protections import Protection, Upload, UploadTask


class FailingModel(LinearModel):
    """Cannot be used."""

    def shard_updates(self, *given: Any) -> Iterator[Flat]:
        raise RuntimeError("no luck")


@dataclass(frozen=True)
class FailingMaker(LinearMaker):
    """Makes it."""

    def __call__(self, seed: int) -> LinearModel:
        return FailingModel(self.classes, self.dimension)


class Halting(Protection):
    """Slow for the largest owner, fails for the smallest; uploads the number of the round."""

    name = "halting"

    def upload(self, task: UploadTask) -> Upload:
        if len(task.records) < 10:
            raise RuntimeError("too few")
        if len(task.records) > 100:
            time.sleep(1)
        return np.full(len(task.model), task.noise.key[1] + 1, np.float32)  # type: ignore[attr-defined]

    def sensitivity(self, dimension: int, records: int, neighbours: object) -> float:
        return 1.0


class Diverging(Halting):
    """The smallest owner's update is not a number, the largest one's infinite."""

    def upload(self, task: UploadTask) -> Upload:
        size = len(task.records)
        value = np.nan if size < 10 else np.inf if size > 100 else 1.0
        return np.full(len(task.model), value, np.float32)


class Endless(Halting):
    """Never answers."""

    def upload(self, task: UploadTask) -> Upload:
        time.sleep(600)
        raise AssertionError
