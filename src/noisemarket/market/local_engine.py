"""Training on this machine: owners one after another, or shared out to worker processes.

On a CPU nothing beats a lean loop per owner on one core: owners are handed out largest first to
workers that share the images, the global model and the place for uploads.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.engine import (
    TEST_BATCH,
    Engine,
    Job,
    Score,
    Weights,
    single_precision,
)
from noisemarket.federated.models.model import ModelMaker, Records
from noisemarket.federated.protections import Protection, Upload
from noisemarket.machine import available_cores
from noisemarket.market.worker_processes import (
    UNGUARDED,
    SharedArrays,
    WorkerProcesses,
    leave_unless_main,
)
from noisemarket.owner.round import OwnerTrainer
from noisemarket.privacy.noise import NoiseSource

MOST_KEPT = 2**28
"""Bytes of owners' records that a worker caches from round to round; others it takes anew."""

_STOPPED = "Stopped in the middle of a round."

Task = tuple[str, int, int]
"""``train``, a round and an owner; or ``score`` and a range of the test records."""
Views = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class OwnerWork:
    """What a worker needs of a job besides the arrays: called with these, it gives the work."""

    model: ModelMaker
    protection: Protection
    seed: int
    noise: NoiseSource
    sigma: NDArray[np.float64]
    indices: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, job: Job) -> OwnerWork:
        return cls(
            job.model, job.protection, job.seed, job.noise_source(), job.sigma,
            tuple(job.partition.indices),
        )  # fmt: skip

    def __call__(self, views: Views) -> Callable[..., Any]:
        model = self.model(self.seed)
        trainer = OwnerTrainer(model, self.protection, self.seed)
        cache: dict[int, Records] = {}
        room = MOST_KEPT

        def records(owner: int) -> Records:
            nonlocal room
            if owner in cache:
                return cache[owner]
            own = self.indices[owner]
            inputs = views["train_images"][own]
            made = model.records(inputs, views["train_labels"][own])
            if inputs.nbytes <= room:
                cache[owner] = made
                room -= inputs.nbytes
            return made

        def work(task: Task, *_tell: object) -> Any:
            kind, first, second = task
            weights, part = views["weights"], slice(first, second)
            if kind == "score":
                inputs, labels = views["test_images"][part], views["test_labels"][part]
                with model.one_thread():
                    return model.score(single_precision(weights), inputs, labels.copy())
            views["uploads"][second] = trainer.upload(
                first, weights, second, records(second), float(self.sigma[second]), self.noise
            )
            return None

        return work


class SerialEngine(Engine):
    """Trains in this process, on one core.

    Slower for one training than ``LocalEngine``, and faster for many: with one process per
    training nothing is started, shared or waited for in between (``in_processes``).
    """

    def __init__(self, job: Job) -> None:
        self._job, self._first = job, job.first_weights()
        self._views = self._arrays()
        self._work = OwnerWork.of(job)(self._views)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        data = self._job.data
        if not len(data.train_labels):
            remedy = "has no owner's records: put a file per owner there, or run over Flower."
            raise BadInput("data", data.source, remedy)
        return {
            "train_images": data.train_inputs(),
            "train_labels": data.train_labels,
            "test_images": data.test_inputs,
            "test_labels": data.test_labels,
            "weights": self._first.copy(),
            "uploads": np.zeros((len(self._job), self._first.size), np.float32),
        }

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        sizes = self._job.partition.sizes
        order = sorted(owners, key=lambda owner: (-int(sizes[owner]), owner))
        self._answers(weights, [("train", round_number, owner) for owner in order])
        return {owner: self._views["uploads"][owner].copy() for owner in owners}

    def score(self, weights: Weights) -> Score:
        images = len(self._job.data.test_labels)
        parts = [("score", at, min(at + TEST_BATCH, images)) for at in range(0, images, TEST_BATCH)]
        answers = self._answers(weights, parts)
        right = sum(answers[part][0] for part in parts)
        loss = sum(answers[part][1] for part in parts)
        return Score(100.0 * right / images, loss / images)

    def _answers(self, weights: Weights, tasks: list[Task]) -> dict[Task, Any]:
        """Have tasks done with this global model, and collect the answers."""
        self._views["weights"][...] = weights
        return {task: self._work(task) for task in tasks}

    def close(self) -> None:
        """Nothing was started."""


class LocalEngine(SerialEngine):
    """Trains with a number of worker processes (by default one per core).

    When ``stop`` returns True, work under way is dropped within a second, the engine closes and
    ``Interrupted`` is raised.
    """

    def __init__(
        self, job: Job, workers: int | None = None, stop: Callable[[], bool] | None = None
    ) -> None:
        leave_unless_main()
        check_sendable("model", job.model)
        check_sendable("protection", job.protection)
        self._job, self._first = job, job.first_weights()
        self._stop, self._started = stop, False
        arrays = self._arrays()
        _check_room(sum(array.nbytes for array in arrays.values()))
        packed = pickle.dumps(OwnerWork.of(job))
        self._shared, self._processes = SharedArrays(arrays), WorkerProcesses()
        self._views = self._shared.views
        try:
            count = max(1, min(workers or available_cores(), len(job)))
            self._processes.start(count, self._shared)
            try:
                self._processes.send(packed)
            except OSError:
                raise self._death() from None
        except BaseException:
            self.close()
            raise

    def _answers(self, weights: Weights, tasks: list[Task]) -> dict[Task, Any]:
        """Have tasks done with this global model, and collect the answers.

        After a failure answers may still be on their way, which the next round would take for its
        own: so the engine closes, and says so from then on.
        """
        if not self._processes.running:
            raise NoisemarketError("The engine is closed: start another.")
        self._views["weights"][...] = weights
        answers = {}
        try:
            for task, problem, answer in self._processes.answers(tasks, self._stop):
                self._started = True
                if problem is not None:
                    raise NoisemarketError(f"A worker failed at {task[0]}: {problem}.")
                answers[task] = answer
            return answers
        except Interrupted:
            self.close(patience=0.0)
            raise Interrupted(_STOPPED) from None
        except (EOFError, OSError):
            death = self._death()
            self.close(patience=0.0)
            raise death from None
        except BaseException:
            self.close(patience=0.0)
            raise

    def _death(self) -> NoisemarketError:
        """What to say about workers of which at least one is gone."""
        if self._stop is not None and self._stop():
            return Interrupted(_STOPPED)
        for worker in self._processes.running:
            worker.join(timeout=1)
        codes = {worker.exitcode for worker in self._processes.running}
        if UNGUARDED in codes:
            return NoisemarketError(
                "Training starts processes that import your script, which must not train again in "
                "them: put the call under if __name__ == '__main__'."
            )
        if 1 in codes and not self._started:
            return NoisemarketError(
                "A worker process could not start; it said why on standard error. Training must be "
                "called from a file that can be imported, under if __name__ == '__main__'."
            )
        return NoisemarketError("A worker process died; the round is lost.")

    def close(self, patience: float = 5.0) -> None:
        self._processes.close(patience)
        self._views = {}
        self._shared.close()


def _check_room(needed: int) -> None:
    """Refuse what would not fit, as far as the system says: processes would be killed for it."""
    free = psutil.virtual_memory().available
    if needed > free:
        raise NoisemarketError(
            f"Training needs {needed / 1e6:.0f} MB of memory for what the workers share, and "
            f"{free / 1e6:.0f} MB are free: take fewer owners or a smaller model."
        )


def check_sendable(field: str, value: object) -> None:
    """Refuse what cannot be sent to a worker process, such as a lambda."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        name = getattr(value, "__qualname__", None) or type(value).__qualname__
        raise BadInput(
            field,
            name,
            "cannot be sent to worker processes: give a class or function from the top level of a "
            "file, or functools.partial of one; no lambda and nothing defined inside a function.",
        ) from None
