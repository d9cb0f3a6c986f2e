"""The engine over Flower: owners are SuperNodes, and a round is a message to each of them.

The same loop trains over it as over worker processes (``federated.rounds``): it charges, screens,
aggregates and writes checkpoints here, on the curator's side. Owners that are away, too late, that
decline or answer what cannot be read give None, and the job goes on without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import Engine, Job, Score, Weights, score_of
from noisemarket.federated.protections import Upload
from noisemarket.flower import wire
from noisemarket.flower.line import Line


class FlowerEngine(Engine):
    """Trains over a line to the owners, inside a ServerApp.

    Args:
        line: names the owners in the job's order.
        job: what is trained. The curator's needs test images only: no training data, and a
            partition of the right length.
        job_id: the name of the job in the owners' terms.
    """

    def __init__(self, line: Line, job: Job, job_id: str) -> None:
        if len(line.names) != len(job):
            raise NoisemarketError(f"{len(job)} owners in the job, but {len(line.names)} names.")
        self.line, self._job, self._id = line, job, job_id
        self._model = job.model(job.seed)
        self._first = job.first_weights()

    @property
    def dimension(self) -> int:
        return int(self._first.size)

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        model = ArrayRecord({wire.WEIGHTS: Array(weights.astype(np.float32))})
        names, asked = self.line.names, dict[str, RecordDict]()
        for owner in owners:
            sigma = float(self._job.sigma[owner])
            config = ConfigRecord({"job": self._id, "server-round": round_number, "sigma": sigma})
            asked[names[owner]] = RecordDict({"arrays": model, "config": config})
        answers = self.line.ask(wire.TRAIN, asked, group=str(round_number))
        return {owner: _upload(answers.get(names[owner])) for owner in owners}

    def score(self, weights: Weights) -> Score:
        return score_of(self._model, weights, self._job.data)

    def close(self) -> None:
        pass  # the grid is Flower's


def _upload(reply: wire.Said | None) -> Upload | None:
    """The update in a reply; None if there is none that can be read."""
    return None if reply is None else wire.array_of(reply, wire.WEIGHTS)
