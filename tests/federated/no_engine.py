"""Rounds without training: an engine that makes its uploads up, and a small job for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Sharded, Upload
from noisemarket.federated.rounds import State, TrainingPlan
from noisemarket.privacy.accountant import Accountant, PrivacyBudget

OWNERS, SIZE = 4, 6


def job(noise: str = "simulated") -> Job:
    images, labels = np.zeros((8, 28, 28), np.uint8), np.arange(8) % 2
    data = Dataset.of(images, labels, images, labels)
    parts = Partition(tuple(np.split(np.arange(8), OWNERS)))
    return Job(data, parts, LinearMaker(2, 784), Sharded(), np.full(OWNERS, 0.5), 3, noise)  # type: ignore[arg-type]


def budgets(caps: Sequence[float] = (np.inf,) * OWNERS) -> list[PrivacyBudget]:
    return [PrivacyBudget(i, "sharded", 0.5, 0.1 * (i + 1), rho_cap=cap)
            for i, cap in enumerate(caps)]  # fmt: skip


class Fake(Engine):
    """Moves every owner by its own number plus the rounds before; records what it was asked."""

    def __init__(self, accountant: Accountant | None = None, bad: object = None) -> None:
        self.asked: list[tuple[int, list[int]]] = []
        self.paid: list[int] = []
        self.accountant, self.bad = accountant, bad

    @property
    def dimension(self) -> int:
        return SIZE

    def first_weights(self) -> Weights:
        return np.zeros(SIZE)

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        self.asked.append((round_number, list(owners)))
        if self.accountant is not None:
            self.paid.append(len(self.accountant.charges))
        made: dict[int, Upload | None] = {
            owner: np.full(SIZE, owner + round_number - 1, np.float32) for owner in owners
        }
        if self.bad is not None:
            made[1] = self.bad  # type: ignore[assignment]
        return made

    def score(self, weights: Weights) -> Score:
        return Score(float(weights[0]), 0.0)

    def close(self) -> None:
        pass


def fresh() -> State:
    return State(np.zeros(SIZE), np.zeros(SIZE))


def plan(rounds: int = 3, averaging: float = 0.0) -> TrainingPlan:
    return TrainingPlan(rounds, np.ones(OWNERS), averaging)
