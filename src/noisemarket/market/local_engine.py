"""The embedded engine: worker processes on this machine, one thread each, over shared memory.

On a CPU nothing beats a lean loop per owner on one core: owners are handed out largest first to
workers that share the images, the global model and the place for uploads. A worker that loses its
parent ends by itself, also in the middle of its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.engine import TEST_BATCH, Engine, Job, Score, Weights
from noisemarket.federated.protections import Upload
from noisemarket.machine import available_cores
from noisemarket.market.worker_processes import WorkerProcesses
from noisemarket.owner.shared_arrays import SharedArrays
from noisemarket.owner.worker import UNGUARDED, WorkerConfig, leave_unless_main, work

_STOPPED = "Stopped in the middle of a round."


class LocalEngine(Engine):
    """Trains on this machine with a number of worker processes (by default one per core).

    When ``stop`` returns True, work under way is dropped within a second, the engine closes and
    ``Interrupted`` is raised.
    """

    def __init__(
        self, job: Job, workers: int | None = None, stop: Callable[[], bool] | None = None
    ) -> None:
        leave_unless_main()
        check_sendable("model", job.model)
        check_sendable("protection", job.protection)
        self._job, self._stop = job, stop
        self._first, self._started = job.first_weights(), False
        arrays: dict[str, NDArray[Any]] = {
            "train_images": job.data.train_inputs(),
            "train_labels": job.data.train_labels,
            "test_images": job.data.test_inputs,
            "test_labels": job.data.test_labels,
            "weights": self._first,
            "uploads": np.zeros((len(job), self._first.size), np.float32),
        }
        _check_room(sum(array.nbytes for array in arrays.values()))
        config = pickle.dumps(
            WorkerConfig(
                job.model, job.protection, job.seed, job.noise_source(), job.sigma,
                tuple(job.partition.indices),
            )
        )  # fmt: skip
        self._shared, self._processes = SharedArrays(arrays), WorkerProcesses()
        try:
            count = max(1, min(workers or available_cores(), len(job)))
            self._processes.start(count, work, self._shared)
            try:
                self._processes.send(config)
            except OSError:
                raise self._death() from None
        except BaseException:
            self.close()
            raise

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        sizes = self._job.partition.sizes
        order = sorted(owners, key=lambda owner: (-int(sizes[owner]), owner))
        self._answers(weights, [("train", round_number, owner) for owner in order])
        return {owner: self._shared.views["uploads"][owner].copy() for owner in owners}

    def score(self, weights: Weights) -> Score:
        images = len(self._job.data.test_labels)
        parts = [("score", at, min(at + TEST_BATCH, images)) for at in range(0, images, TEST_BATCH)]
        answers = self._answers(weights, parts)
        right = sum(answers[part][0] for part in parts)
        loss = sum(answers[part][1] for part in parts)
        return Score(100.0 * right / images, loss / images)

    def _answers(
        self, weights: Weights, tasks: list[tuple[str, int, int]]
    ) -> dict[tuple[str, int, int], Any]:
        """Have tasks done with this global model, and collect the answers.

        After a failure answers may still be on their way, which the next round would take for its
        own: so the engine closes, and says so from then on.
        """
        if not self._processes.running:
            raise NoisemarketError("The engine is closed: start another.")
        self._shared.views["weights"][...] = weights
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
