"""Trainings of a study: each is done once, in one process, and kept in a file.

A training is an experiment by one party that holds all the data. Noise comes from the seed, so that
it can be repeated bit by bit; nobody's privacy is protected by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from noisemarket.federated.aggregation import effective_noise, effective_share
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.rounds import RoundResult
from noisemarket.files import Closing, JsonLines, digest
from noisemarket.game.levels import FloatArray
from noisemarket.market.baselines import with_noise
from noisemarket.market.orders import Order, order
from noisemarket.market.training import SerialEngine, carry_out
from noisemarket.market.worker_processes import in_processes
from noisemarket.privacy.accountant import Accountant
from noisemarket.scenario import Scenario

TRAININGS = "trainings.jsonl"
Key = tuple[int, str]
"""A training: the seed of data and noise, and a digest of all owners' noise and data."""


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """All owners' noise under one seed, to be trained; ``beta`` replaces that of their data."""

    seed: int
    sigma: FloatArray
    beta: float | None = None

    @property
    def key(self) -> Key:
        """Equal for tasks with the same seed, noise and data."""
        beta = b"" if self.beta is None else np.float64(self.beta).tobytes()
        return self.seed, digest(np.ascontiguousarray(self.sigma).tobytes() + beta).hex()[:24]


@dataclass(frozen=True)
class TrainingResult:
    """The deployed accuracy after each round, in per cent, and what it took.

    The model is the one that a curator would deploy: the average of the global models where one is
    kept, else the last. ``effective_noise`` is the one noise of all owners that would leave their
    mean as noisy, ``effective_share`` the share of the owners that it rests on.
    """

    seed: int
    noise: str
    accuracies: list[float]
    effective_noise: float
    effective_share: float
    seconds: float
    cpu_seconds: float

    @property
    def key(self) -> Key:
        """The key of its task."""
        return self.seed, self.noise


def data_of(scenario: Scenario) -> Dataset:
    """The images that a scenario trains with."""
    data = load_data(scenario.training.data or None)
    return data.with_features() if scenario.training.model == "features" else data


class TrainingWork:
    """Trains one job on one core; it can be sent to another process.

    The job's data and owners are the seed's, its noise is simulated.
    """

    def __init__(self, scenario: Scenario, data: Dataset | None = None) -> None:
        self._scenario, self._data = scenario, data or data_of(scenario)
        self._last: tuple[int, float | None, Scenario, Order] | None = None

    def order(self, task: TrainingTask) -> Order:
        """The job of a task."""
        if self._last is None or self._last[:2] != (task.seed, task.beta):
            seeded = self._scenario.model_copy(update={"seed": task.seed})
            people = seeded.environment()
            if task.beta is not None:
                population = replace(people.population, beta=np.full(len(people), task.beta))
                people = replace(people, population=population)
            nothing = np.full(len(people), seeded.game.sigma_max)
            made = order(seeded, people, nothing, data=self._data)
            self._last = task.seed, task.beta, seeded, made
        return with_noise(self._last[3], self._last[2], task.sigma)

    def __call__(
        self, task: TrainingTask, watch: Callable[[RoundResult], object]
    ) -> TrainingResult:
        used = time.process_time()
        made = self.order(task)
        rounds = carry_out(
            made, Accountant(made.budgets), engine=SerialEngine, watch=watch
        ).rounds  # fmt: skip
        deployed = [result.averaged or result.score for result in rounds]
        return TrainingResult(
            *task.key,
            accuracies=[score.accuracy for score in deployed],
            effective_noise=effective_noise(made.job.sigma, made.plan.shares),
            effective_share=effective_share(made.plan.shares),
            seconds=sum(result.seconds for result in rounds),
            cpu_seconds=time.process_time() - used,
        )


class TrainingFile(Closing):
    """The trainings done so far, of earlier runs too: each is on disk once it is done.

    One process at a time may have the file open. Without a path nothing is kept on disk.
    """

    def __init__(self, path: Path | None) -> None:
        self.results: dict[Key, TrainingResult] = {}
        self._file = None
        if path is None:
            return
        self._file = JsonLines(path, "trainings", "another study")
        try:
            remedy = "remove it, and it is trained again."
            done = self._file.read(lambda values: TrainingResult(**values), remedy)
        except BaseException:
            self.close()
            raise
        self.results = {one.key: one for one in done}

    def add(self, one: TrainingResult) -> None:
        """Save a result. It is on disk when this returns."""
        if self._file is not None:
            self._file.append(vars(one))
        self.results[one.key] = one

    def train(
        self,
        scenario: Scenario,
        tasks: Sequence[TrainingTask],
        *,
        data: Dataset | None = None,
        workers: int | None = None,
        stop: Callable[[], bool] | None = None,
        watch: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        """Train the missing tasks, as many at once as there are processes.

        ``data`` is by default that of the scenario.
        """
        left = [one for one in tasks if one.key not in self.results]
        watch(len(tasks) - len(left), len(tasks))
        if not left:
            return
        work = TrainingWork(scenario, data)
        for _, result in in_processes(work, left, workers=workers, stop=stop):
            self.add(result)
            watch(sum(one.key in self.results for one in tasks), len(tasks))

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds of all trainings, of earlier runs too."""
        return sum(one.cpu_seconds for one in self.results.values())

    def close(self) -> None:
        """Close the file and let other processes use it."""
        if self._file is not None:
            self._file.close()
