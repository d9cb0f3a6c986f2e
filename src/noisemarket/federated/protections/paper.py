"""The paper's protection: train a local epoch, add noise once. It guarantees nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.privacy.noise import LARGEST, add_noise
from noisemarket.privacy.noise_check import Evidence
from noisemarket.privacy.zcdp import Neighbours

LONGER_THAN_USUAL = 3.0
"""Nothing bounds an update. One that is so many times longer than the usual one of its round is
refused: a single owner must not move the model at will."""

LARGEST_RMS = 1.0
"""Nor may it be longer than this for each parameter, root mean square, however few there are to
compare it with: trained networks hardly have weights of that size."""

FAR_LONGER = "far longer than usual"

_SLACK = 3.0  # standard deviations by which an update may be longer than it looks under its noise


@dataclass(frozen=True)
class Paper(Protection):
    """Mini-batch SGD over the owner's data, then Gaussian noise on the local model.

    The paper accounts for it by the sensitivity of a single clipped gradient. But a changed record
    changes every later step, and no gradient is clipped. So nothing is guaranteed.

    Example:
        >>> Paper(batch=32, epochs=2).settings()
        {'batch': 32, 'rate': 0.05, 'epochs': 2}
    """

    batch: int = 64
    rate: float = 0.05
    epochs: int = 1
    name = "paper"
    scenario_keys: ClassVar = {"batch": "training.batch", "rate": "local_rate"}

    def upload(self, task: UploadTask) -> Upload:
        update = local_sgd(task, self.batch, self.rate, self.epochs)
        if not np.abs(update).max() <= LARGEST:  # it guarantees nothing, so it may say so
            return np.full_like(update, np.nan)
        return add_noise(update, task.sigma, task.noise)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        return math.inf

    def usual_length(self, uploads: Mapping[int, Upload], sigma: Mapping[int, float]) -> float:
        """From the median length of the round's updates under their noise, each with its own."""
        bound = LARGEST_RMS * math.sqrt(next(iter(uploads.values())).size)
        if len(uploads) < 3:
            return bound
        squares = []
        for owner, upload in uploads.items():
            size, variance = upload.size, sigma[owner] ** 2
            square = float(np.square(upload.astype(np.float64)).sum())
            update = max(square - size * variance, 0.0)
            unsure = math.sqrt(variance * (2.0 * size * variance + 4.0 * update))
            squares.append(update + _SLACK * unsure)
        usual = math.sqrt(float(np.median(squares)))
        return min(bound, LONGER_THAN_USUAL * usual) if usual > 0.0 else bound

    def explain(self, evidence: Evidence) -> str:
        """Where nothing bounds an update, too much noise cannot be told from learning."""
        return FAR_LONGER if evidence.verdict == "too much noise" else evidence.verdict


@np.errstate(over="ignore", invalid="ignore")
def local_sgd(task: UploadTask, batch: int, rate: float, epochs: int) -> Upload:
    """What some epochs of mini-batch SGD make of the global model, less the global model."""
    records, weights = task.records, task.start.copy()
    for _ in range(epochs):
        order = task.rng.permutation(len(records))
        for at in range(0, len(records), batch):
            task.model.descend(weights, records.take(order[at : at + batch]), rate)
    return weights - task.start
