"""The embedded engine: worker processes on this machine, one thread each, over shared memory.

On a CPU nothing beats a lean loop per owner on one core: owners are handed out largest first to
workers that share the images, the global model and the place for uploads. A worker that loses its
parent ends by itself, also in the middle of its work.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import connection, get_context, resource_tracker
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from noisemarket.cores import available_cores
from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.engine import TEST_BATCH, Engine, Job, Score, Weights
from noisemarket.federated.protections import Upload
from noisemarket.owner.shared_arrays import SharedArrays
from noisemarket.owner.worker import UNGUARDED, WorkerConfig, leave_unless_main, work

LOOK_EVERY = 0.2
"""Seconds between two looks at whether to stop."""

_MALLOC = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"


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
        self._started = False
        self._shared: SharedArrays | None = None
        self._workers: list[Any] = []
        self._pipes: list[connection.Connection] = []
        count = max(1, min(workers or available_cores(), len(job)))
        try:
            self._start(count)
        except BaseException:
            self.close()
            raise

    def _start(self, count: int) -> None:
        job = self._job
        first = job.first_weights()
        self._first = first
        arrays: dict[str, NDArray[Any]] = {
            "train_images": job.data.train_inputs(),
            "train_labels": job.data.train_labels,
            "test_images": job.data.test_inputs,
            "test_labels": job.data.test_labels,
            "weights": first.copy(),
            "uploads": np.zeros((len(job), first.size), np.float32),
        }
        _check_room(sum(array.nbytes for array in arrays.values()))
        self._shared = SharedArrays(arrays)
        self._views = self._shared.views
        config = WorkerConfig(
            job.model, job.protection, job.seed, job.noise_source(), job.sigma,
            tuple(job.partition.indices),
        )  # fmt: skip
        pickled = pickle.dumps(config)
        context = get_context("spawn")
        with one_thread(), no_interrupts():
            for _ in range(count):
                ours, theirs = context.Pipe()
                worker = context.Process(target=work, args=(theirs, self._shared), daemon=True)
                worker.start()
                theirs.close()
                self._workers.append(worker)
                self._pipes.append(ours)
        try:
            for pipe in self._pipes:
                pipe.send_bytes(pickled)
        except OSError:
            raise self._death() from None

    @property
    def dimension(self) -> int:
        return int(self._first.size)

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        self._set_weights(weights)
        sizes = self._job.partition.sizes
        order = sorted(owners, key=lambda owner: (-int(sizes[owner]), owner))
        self._share_out([("train", round_number, owner) for owner in order])
        return {owner: self._views["uploads"][owner].copy() for owner in owners}

    def score(self, weights: Weights) -> Score:
        self._set_weights(weights)
        images = len(self._job.data.test_labels)
        parts = [("score", at, min(at + TEST_BATCH, images)) for at in range(0, images, TEST_BATCH)]
        answers = self._share_out(parts)
        right = sum(answers[part][0] for part in parts)
        loss = sum(answers[part][1] for part in parts)
        return Score(100.0 * right / images, loss / images)

    def _set_weights(self, weights: Weights) -> None:
        if not self._pipes:
            raise NoisemarketError("The engine is closed: start another.")
        self._views["weights"][...] = weights

    def _share_out(self, tasks: list[tuple[str, int, int]]) -> dict[tuple[str, int, int], Any]:
        """Hand out tasks one by one to whoever is free, and collect the answers.

        After a failure answers may still be on their way, which the next round would take for its
        own: so the engine closes, and says so from then on.
        """
        try:
            return self._answers(tasks)
        except (EOFError, OSError):
            problem = self._death()
            self._drop()
            raise problem from None
        except BaseException:
            self._drop()
            raise

    def _death(self) -> NoisemarketError:
        """What to say about workers of which at least one is gone."""
        if self._stop is not None and self._stop():
            return Interrupted("Stopped in the middle of a round.")
        for worker in self._workers:
            worker.join(timeout=1)
        codes = {worker.exitcode for worker in self._workers}
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

    def _drop(self) -> None:
        """Close without waiting for work under way."""
        for worker in self._workers:
            worker.kill()
        self.close()

    def _answers(self, tasks: list[tuple[str, int, int]]) -> dict[tuple[str, int, int], Any]:
        waiting = iter(tasks)
        answers: dict[tuple[str, int, int], Any] = {}
        doing: dict[connection.Connection, tuple[str, int, int]] = {}
        for pipe in self._pipes:
            task = next(waiting, None)
            if task is not None:
                pipe.send(task)
                doing[pipe] = task
        pause = None if self._stop is None else LOOK_EVERY
        while doing:
            arrived = connection.wait(list(doing), pause)
            if self._stop is not None and self._stop():
                raise Interrupted("Stopped in the middle of a round.")
            for ready in arrived:
                assert isinstance(ready, connection.Connection)
                task = doing.pop(ready)
                problem, answer = ready.recv()
                self._started = True
                if problem is not None:
                    raise NoisemarketError(f"A worker failed at {task[0]}: {problem}.")
                answers[task] = answer
                following = next(waiting, None)
                if following is not None:
                    ready.send(following)
                    doing[ready] = following
        return answers

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            worker.join(timeout=5)
            if worker.is_alive():
                worker.kill()
                worker.join()
        self._views = {}
        if self._shared is not None:
            self._shared.close()
        self._pipes, self._workers, self._shared = [], [], None


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


@contextmanager
def no_interrupts() -> Iterator[None]:
    """Ctrl-C is for the parent alone: processes started meanwhile never see it, not even while
    they start; here it waits."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # begun later, it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def one_thread() -> AbstractContextManager[None]:
    """Processes that are started meanwhile compute with one thread each."""
    return _environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", GLIBC_TUNABLES=_MALLOC)


@contextmanager
def _environment(**settings: str) -> Iterator[None]:
    """Environment variables for processes started meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
