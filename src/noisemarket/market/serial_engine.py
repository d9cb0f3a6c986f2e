"""An engine without processes: all owners one after another, on one core.

Slower for one training than the embedded engine, and faster for many: with one process per training
nothing is started, shared or waited for in between (``worker_processes.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from noisemarket.federated.engine import Engine, Job, Score, Weights, score_of
from noisemarket.federated.models.model import Records
from noisemarket.federated.protections import Upload
from noisemarket.owner.round import OwnerTrainer
from noisemarket.owner.worker import MOST_KEPT


class SerialEngine(Engine):
    """What the embedded engine's workers do, in this process."""

    def __init__(self, job: Job) -> None:
        self._job, self._model = job, job.model(job.seed)
        self._first = job.first_weights()
        self._trainer = OwnerTrainer(self._model, job.protection, job.seed)
        self._train = job.data.train_inputs()
        self._kept: dict[int, Records] = {}
        self._keeps = self._train.nbytes <= MOST_KEPT

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        sigma, noise = self._job.sigma, self._job.noise_source()
        return {
            owner: self._trainer.upload(
                round_number, weights, owner, self._records(owner), float(sigma[owner]), noise
            )
            for owner in owners
        }

    def _records(self, owner: int) -> Records:
        if owner in self._kept:
            return self._kept[owner]
        held = self._job.partition.indices[owner]
        records = self._model.records(self._train[held], self._job.data.train_labels[held])
        if self._keeps:
            self._kept[owner] = records
        return records

    def score(self, weights: Weights) -> Score:
        return score_of(self._model, weights, self._job.data)

    def close(self) -> None:
        self._kept.clear()
