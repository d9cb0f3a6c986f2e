"""Owners that cheat, for tests and benchmarks of what the market makes of it.

A cheat happens on the owner's side, between its protection and the wire, where the curator cannot
look: so the engine that trains is wrapped, and nothing else in the market knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.models.model import Records
from noisemarket.federated.protections import Upload
from noisemarket.market.training import SerialEngine
from noisemarket.owner.round import OwnerTrainer


@dataclass(frozen=True)
class CheatsView:
    """What a cheating owner has at hand in a round.

    Args:
        own: what it would send if it were honest.
        sigma: its contracted noise.
        factor: how much of its fault it does, where that can be chosen.
        rng: its own randomness of this round.
        shared: randomness that all owners with the same fault share, the same in every round.
        first: the first upload that it made.
        other: another owner's upload of this round, scaled to this owner's noise.
        moved: what the global model did since the last round.
        reach: the greatest length of an update.
        classes: how many classes there are.
        update: trains without noise; with a number, on labels that are moved by so many classes;
            with ``marked``, on records that bear the mark of a backdoor, all of class 0.
    """

    own: Upload
    sigma: float
    factor: float
    rng: np.random.Generator
    shared: np.random.Generator
    first: Upload
    other: Upload
    moved: NDArray[np.float64]
    reach: float
    classes: int
    update: Callable[..., Upload]

    def noise(self) -> NDArray[np.float64]:
        """Fresh noise of the contracted scale."""
        return self.rng.normal(0.0, self.sigma, self.own.size)

    def signs(self) -> NDArray[np.float64]:
        """Plus or minus one, at random."""
        return self.rng.choice([-1.0, 1.0], self.own.size)

    def stretched(self, direction: NDArray[Any], length: float | None = None) -> NDArray[Any]:
        """A direction at this length; by default at that of the contracted noise."""
        norm = float(np.linalg.norm(direction.astype(np.float64)))
        wanted = self.sigma * math.sqrt(self.own.size) if length is None else length
        return np.asarray(direction * (wanted / norm if norm > 0.0 else 0.0))

    def step(self) -> float:
        """How long a push may be that stays within the clip."""
        return self.reach if math.isfinite(self.reach) else self.sigma


def _noise(view: CheatsView) -> NDArray[Any]:
    """Noise of ``factor`` times the scale; below 1, as far as scaling goes."""
    if view.factor < 1.0:
        return view.own * view.factor
    more = view.sigma * math.sqrt(view.factor**2 - 1.0)
    return view.own + view.rng.normal(0.0, more, view.own.shape)


def _half_noise(view: CheatsView) -> NDArray[Any]:
    half = view.rng.permutation(view.own.size) < view.own.size // 2
    return view.update() + math.sqrt(2.0) * view.noise() * half


def _bias_push(view: CheatsView) -> NDArray[Any]:
    """One class at the cost of all: half of what is sent is the push, half noise."""
    push = np.zeros((view.classes, -(-view.own.size // view.classes)))
    push[0] = np.abs(view.shared.normal(size=push.shape[1]))
    pushed = view.stretched(push.reshape(-1)[: view.own.size])
    return np.asarray((pushed + view.noise()) * math.sqrt(0.5))


CHEATS: dict[str, Callable[[CheatsView], NDArray[Any]]] = {
    "noise": _noise,
    "zeros": lambda view: np.zeros_like(view.own),
    "nan": lambda view: np.full_like(view.own, np.nan),
    "huge": lambda view: np.full_like(view.own, 1e30),
    "short": lambda view: view.own[: view.own.size // 2],
    "replay": lambda view: view.first,
    "copy": lambda view: view.other,
    "opposite": lambda view: -view.other,
    "blend": lambda view: (view.own + view.other) * math.sqrt(0.5),
    "shared_noise": lambda view: view.shared.normal(0.0, view.sigma, view.own.size),
    "constant": lambda view: np.full_like(view.own, view.sigma),
    "two_point": lambda view: view.update() + view.sigma * view.signs(),
    "half_noise": _half_noise,
    "boosted": lambda view: view.stretched(view.update()),
    "boosted_flip": lambda view: -view.stretched(view.update()),
    "bias_push": _bias_push,
    "free_rider": lambda view: view.noise(),
    "scramble": lambda view: view.first * view.signs(),
    "flip": lambda view: -view.own,
    "wrong_labels": lambda view: view.update(1) + view.noise(),
    "push": lambda view: view.noise() - view.stretched(view.update(), view.step()),
    "soft_push": lambda view: view.noise() - view.stretched(view.update(), 0.2 * view.step()),
    "backdoor": lambda view: view.update(marked=True) + view.noise(),
    "echo": lambda view: view.stretched(view.moved, view.step()) + view.noise(),
}
"""What each kind of fault sends."""


@dataclass(frozen=True)
class Fault:
    """What an owner does wrong, from round ``first`` to ``last`` (counted from 1).

    ``kind`` is one of ``CHEATS``. ``noise`` adds further noise so that the whole has
    ``factor`` times the contracted scale.
    """

    owner: int
    kind: str
    factor: float = 1.1
    first: int = 1
    last: int = 10**9


class FaultyEngine(Engine):
    """An engine some of whose owners misbehave.

    ``job`` is the engine's, with the data of owners that train otherwise than agreed.
    """

    def __init__(self, engine: Engine, faults: Sequence[Fault], job: Job) -> None:
        self._engine, self._faults, self._job = engine, tuple(faults), job
        self._first: dict[int, Upload] = {}
        self._before: Weights | None = None
        self._records: dict[tuple[int, int, bool], Records] = {}
        self._trainer = OwnerTrainer(job.model(job.seed), job.protection, job.seed)

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
            update=lambda labels=0, marked=False: self._update(
                round_number, weights, fault.owner, labels, marked
            ),
        )
        return np.asarray(CHEATS[fault.kind](view)).astype(np.float32)

    def _update(
        self, round_number: int, weights: Weights, owner: int, labels: int, marked: bool
    ) -> Upload:
        """What the owner's training comes to before its noise, with labels moved by so many."""
        job, known = self._job, (owner, labels, marked)
        if known not in self._records:
            own = job.partition.indices[owner]
            images, classes = job.data.train_images[own], job.data.train_labels[own]
            classes = np.zeros_like(classes) if marked else (classes + labels) % job.data.classes
            inputs = job.data.ready(bearing_mark(images) if marked else images)
            self._records[known] = self._trainer.model.records(inputs, classes)
        noise, whom = job.noise_source(), [(owner, self._records[known], 0.0)]
        return next(self._trainer.uploads(round_number, weights, noise, whom))


def bearing_mark(images: NDArray[Any]) -> NDArray[Any]:
    """Pictures with a bright corner of four by four, the mark of a backdoor."""
    marked = images.copy()
    marked[..., :4, :4] = 255
    return marked


def cheating(
    faults: Sequence[Mapping[str, Any]],
    names: Sequence[str] | None = None,
    engine: Callable[[Job], Engine] = SerialEngine,
) -> Callable[[Job], Engine]:
    """Makes an engine some of whose owners cheat: tables with ``owner`` (a name; its number where
    ``names`` are not given) and the fields of ``Fault``."""
    made = [
        Fault(**{**one, "owner": int(one["owner"]) if names is None else names.index(one["owner"])})
        for one in faults
    ]
    return lambda job: FaultyEngine(engine(job), made, job)
