"""Owners that do not keep to their contracts, for studies and tests of what the market makes of it.

A fault happens on the owner's side, between its protection and the wire, where the curator cannot
look: so the engine that trains is wrapped, and nothing else in the market knows. What each kind
sends is in ``cheats``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.protections import Upload
from noisemarket.ledger.contract import Contract
from noisemarket.market.cheats import CHEATS, CheatsView
from noisemarket.owner.round import OwnerTrainer
from noisemarket.scenario import Scenario


@dataclass(frozen=True)
class Fault:
    """What an owner does wrong, from round ``first`` to ``last`` (counted from 1).

    ``kind`` is one of ``FAULT_KINDS``. ``noise`` adds further noise so that the whole has
    ``factor`` times the contracted scale.
    """

    owner: int
    kind: str
    factor: float = 1.1
    first: int = 1
    last: int = 10**9


class FaultyEngine(Engine):
    """An engine some of whose owners misbehave.

    Args:
        engine: trains all of them.
        faults: who does what.
        job: the job of the engine, with the data of owners that train otherwise than agreed.
    """

    def __init__(self, engine: Engine, faults: Sequence[Fault], job: Job) -> None:
        self._engine, self._faults, self._job = engine, tuple(faults), job
        self._first: dict[int, Upload] = {}
        self._before: Weights | None = None

    @property
    def dimension(self) -> int:
        return self._engine.dimension

    def first_weights(self) -> Weights:
        return self._engine.first_weights()

    def score(self, weights: Weights) -> Score:
        return self._engine.score(weights)

    def close(self) -> None:
        self._engine.close()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        honest = self._engine.train(round_number, weights, owners)
        sent = dict(honest)
        for fault in self._faults:
            if fault.owner in honest and fault.first <= round_number <= fault.last:
                sent[fault.owner] = self._spoilt(fault, honest, round_number, weights)
        self._before = weights.copy()
        return sent

    def _spoilt(
        self,
        fault: Fault,
        honest: dict[int, Upload | None],
        round_number: int,
        weights: Weights,
    ) -> Upload | None:
        own, job = honest[fault.owner], self._job
        if own is None or fault.kind == "absent":
            return None
        others = [owner for owner in sorted(honest) if honest[owner] is not None]
        after = others[(others.index(fault.owner) + 1) % len(others)]
        other = honest[after]
        assert other is not None
        scale = np.float32(job.sigma[fault.owner] / max(float(job.sigma[after]), 1e-12))
        view = CheatsView(
            own=own,
            sigma=float(job.sigma[fault.owner]),
            factor=fault.factor,
            rng=np.random.default_rng([job.seed, fault.owner, round_number - 1]),
            shared=np.random.default_rng([job.seed, 10**9]),
            first=self._first.setdefault(fault.owner, own),
            other=other * scale,
            moved=np.zeros_like(weights) if self._before is None else weights - self._before,
            reach=job.protection.reach(len(job.partition.indices[fault.owner])),
            classes=job.data.classes,
            update=lambda labels=0: self._update(round_number, weights, fault.owner, labels),
        )
        return CHEATS[fault.kind](view)

    def _update(self, round_number: int, weights: Weights, owner: int, labels: int) -> Upload:
        """What the owner's training comes to before its noise, with labels moved by so many."""
        job = self._job
        model, own = job.model(job.seed), job.partition.indices[owner]
        marks = (job.data.train_labels[own] + labels) % job.data.classes
        records = model.records(job.data.ready(job.data.train_images[own]), marks)
        trainer = OwnerTrainer(model, job.protection, job.seed)
        return trainer.upload(round_number, weights, owner, records, 0.0, job.noise_source())


def with_faults(
    engine: Engine, scenario: Scenario, contracts: Mapping[int, Contract], job: Job
) -> Engine:
    """The engine with the scenario's faults, if an owner under contract has one."""
    indices = {contract.owner: index for index, contract in contracts.items()}
    faults = [
        Fault(indices[fault.owner], fault.kind, fault.factor, fault.first, fault.last)
        for fault in scenario.faults
        if fault.owner in indices
    ]
    return FaultyEngine(engine, faults, job) if faults else engine
