"""The engine over Flower: owners are SuperNodes, and a round is a message to each of them.

The same loop trains over it as over worker processes (``federated.training``): it charges, screens,
aggregates and writes checkpoints here, on the curator's side. Owners that are away, too late, that
refuse or answer what cannot be read give None, and the job goes on without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.model import first_weights, seeded, tensor
from noisemarket.federated.protections import Upload
from noisemarket.flower.api import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from noisemarket.flower.client import WEIGHTS
from noisemarket.flower.nodes import Nodes, Traffic

if TYPE_CHECKING:
    from flwr.serverapp import Grid

_TEST_BATCH = 1000


class FlowerEngine(Engine):
    """Trains over a grid, inside a ServerApp.

    ``names`` are the owners in the job's order, ``job_id`` is what the owners' terms call the job;
    ``timeout``, ``grace`` and ``at_once`` bound a round, ``insecure`` believes nodes without a name
    (see ``nodes``). Given ``Nodes`` instead of a grid, it uses theirs. The curator's job needs test
    images only: no training data, and a partition of the right length.
    """

    def __init__(
        self,
        grid: Grid | Nodes,
        job: Job,
        names: Sequence[str],
        job_id: str,
        *,
        timeout: float = 600.0,
        grace: float = math.inf,
        insecure: bool = False,
        at_once: int = 0,
    ) -> None:
        if len(names) != len(job):
            raise NoisemarketError(f"{len(job)} owners in the job, but {len(names)} names.")
        if isinstance(grid, Nodes):
            self._line = grid
        else:
            self._line = Nodes(
                grid, names, job_id, timeout=timeout, grace=grace, insecure=insecure,
                at_once=at_once,
            )  # fmt: skip
        self._job, self._names, self._job_id = job, list(names), job_id
        self._first = first_weights(job.model, job.seed)
        self._model = seeded(job.model, job.seed)

    @property
    def nodes(self) -> dict[str, int]:
        """Flower's number of the node of each owner that was ever seen."""
        return self._line.known

    @property
    def traffic(self) -> list[Traffic]:
        """What every exchange took."""
        return self._line.traffic

    @property
    def dimension(self) -> int:
        return int(self._first.size)

    def first_weights(self) -> Weights:
        return self._first.copy()

    def meet(self, timeout: float = 120.0, *, at_least: int | None = None) -> list[int]:
        """Wait until the owners are there, by default all; gives those that are.

        Also ``present`` for ``federated.training.train``: who is away is not charged.
        """
        return self._line.meet(timeout, at_least=at_least)

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        model = ArrayRecord({WEIGHTS: Array(weights.astype(np.float32))})
        asked: dict[str, RecordDict] = {}
        for owner in owners:
            config: dict[str, Any] = {
                "job": self._job_id,
                "round": round_number,
                "sigma": float(self._job.sigma[owner]),
            }
            asked[self._names[owner]] = RecordDict(
                {"arrays": model, "config": ConfigRecord(config)}
            )
        answers = self.ask("train", asked, group=str(round_number + 1))
        return {owner: _upload(answers.get(self._names[owner])) for owner in owners}

    def score(self, weights: Weights) -> Score:
        import torch

        data = self._job.data
        self._model.weights.copy_(torch.from_numpy(weights.astype(np.float32)))
        images, labels = len(data.test_labels), torch.from_numpy(data.test_labels.copy())
        right, loss = 0, 0.0
        for at in range(0, images, _TEST_BATCH):
            part = slice(at, at + _TEST_BATCH)
            ready = tensor(data.ready(data.test_images[part]))
            found, lost = self._model.score(ready, labels[part])
            right, loss = right + found, loss + lost
        return Score(100.0 * right / images, loss / images)

    def close(self) -> None:
        pass  # the grid is Flower's

    def ask(
        self,
        kind: str,
        contents: Mapping[str, RecordDict],
        *,
        timeout: float | None = None,
        group: str = "",
    ) -> dict[str, Message]:
        """Send each owner a message and collect what comes back in time, but for error replies."""
        return self._line.ask(kind, contents, timeout=timeout, group=group)


def _upload(reply: Message | None) -> Upload | None:
    """The update in a reply; None if there is none that can be read."""
    arrays = None if reply is None else reply.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or WEIGHTS not in arrays:
        return None
    try:
        return arrays[WEIGHTS].numpy()
    except Exception:  # whatever an owner's bytes do to the reader, it is that owner's loss
        return None
