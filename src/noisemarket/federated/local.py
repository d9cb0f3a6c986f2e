"""The embedded engine: worker processes on this machine, one thread each, over shared memory.

On a CPU nothing beats a lean loop per owner on one core: owners are handed out largest first to
workers that share the images, the global model and the place for uploads. A worker that loses its
parent ends by itself, because its pipe does.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, shared_memory
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.cores import available_cores
from noisemarket.errors import NoisemarketError
from noisemarket.federated.data import Images
from noisemarket.federated.engine import Engine, Job, Noise, Score, Weights
from noisemarket.federated.model import ModelMaker
from noisemarket.federated.protections import Protection, Upload

_TEST_BATCH = 1000
_MALLOC = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"


@dataclass(frozen=True)
class _Shared:
    """An array in shared memory, by name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def open(self) -> tuple[shared_memory.SharedMemory, NDArray[Any]]:
        memory = shared_memory.SharedMemory(name=self.name)
        return memory, np.ndarray(self.shape, self.dtype, buffer=memory.buf)


@dataclass(frozen=True)
class _Brief:
    """What a worker is told once."""

    model: ModelMaker
    protection: Protection
    seed: int
    noise: Noise
    sigma: NDArray[np.float64]
    indices: tuple[NDArray[np.int64], ...]
    arrays: dict[str, _Shared]


class LocalEngine(Engine):
    """Trains on this machine with a number of worker processes (by default one per core)."""

    def __init__(self, job: Job, workers: int | None = None) -> None:
        self._job = job
        self._memories: list[shared_memory.SharedMemory] = []
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
        first = _first_weights(job.model, job.seed)
        self._first = first
        arrays: dict[str, NDArray[Any]] = {
            "train_images": _ready(job.data.train_images),
            "train_labels": job.data.train_labels,
            "test_images": _ready(job.data.test_images),
            "test_labels": job.data.test_labels,
            "weights": first.copy(),
            "uploads": np.zeros((len(job), first.size), np.float32),
        }
        _check_room(sum(array.nbytes for array in arrays.values()))
        shared: dict[str, _Shared] = {}
        self._views: dict[str, NDArray[Any]] = {}
        for name, array in arrays.items():
            memory = shared_memory.SharedMemory(create=True, size=max(array.nbytes, 1))
            self._memories.append(memory)
            view: NDArray[Any] = np.ndarray(array.shape, array.dtype, buffer=memory.buf)
            view[...] = array
            self._views[name] = view
            shared[name] = _Shared(memory.name, array.shape, array.dtype.str)
        brief = _Brief(
            job.model, job.protection, job.seed, job.noise, job.sigma,
            tuple(job.partition.indices), shared,
        )  # fmt: skip
        told = pickle.dumps(brief)
        context = get_context("spawn")
        with _environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", GLIBC_TUNABLES=_MALLOC):
            for _ in range(count):
                ours, theirs = context.Pipe()
                worker = context.Process(target=_work, args=(theirs, told), daemon=True)
                worker.start()
                theirs.close()
                self._workers.append(worker)
                self._pipes.append(ours)

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
        parts = [
            ("score", at, min(at + _TEST_BATCH, images)) for at in range(0, images, _TEST_BATCH)
        ]
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
            self.close()
            raise NoisemarketError("A worker process died; the round is lost.") from None
        except BaseException:
            self.close()
            raise

    def _answers(self, tasks: list[tuple[str, int, int]]) -> dict[tuple[str, int, int], Any]:
        waiting = iter(tasks)
        answers: dict[tuple[str, int, int], Any] = {}
        doing: dict[connection.Connection, tuple[str, int, int]] = {}
        for pipe in self._pipes:
            task = next(waiting, None)
            if task is not None:
                pipe.send(task)
                doing[pipe] = task
        while doing:
            for ready in connection.wait(list(doing)):
                assert isinstance(ready, connection.Connection)
                task = doing.pop(ready)
                problem, answer = ready.recv()
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
        for memory in self._memories:
            memory.close()
            memory.unlink()
        self._pipes, self._workers, self._memories = [], [], []


def _check_room(needed: int) -> None:
    """Refuse what would not fit: a process that writes past the end of it is killed."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return
    stats = os.statvfs(place)
    free = stats.f_bavail * stats.f_frsize
    if needed > free:
        raise NoisemarketError(
            f"Training needs {needed / 1e6:.0f} MB of shared memory and {place} has "
            f"{free / 1e6:.0f} MB free: enlarge it, or take fewer owners or a smaller model."
        )


def _ready(images: Images) -> NDArray[np.float32]:
    """Images as the model wants them: floats, normalised by MNIST's mean and deviation."""
    values = images.astype(np.float32)
    if images.dtype == np.uint8:
        values = (values / 255.0 - 0.1307) / 0.3081
    return np.ascontiguousarray(values, dtype=np.float32)


def _first_weights(model: ModelMaker, seed: int) -> Weights:
    import torch

    from noisemarket.federated.model import FlatModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        flat = FlatModel(model())
    return flat.weights.numpy().astype(np.float64)


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


def _work(pipe: connection.Connection, told: bytes) -> None:
    """A worker's life: answer tasks until the pipe ends."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the pipe
    answer: Callable[[str, int, int], Any] | None = None
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if answer is None:
                answer = _set_up(pickle.loads(told))
            reply: tuple[str | None, Any] = (None, answer(*task))
        except Exception as problem:
            reply = (f"{type(problem).__name__}: {problem}", None)
        try:
            pipe.send(reply)
        except (BrokenPipeError, OSError):
            return


def _set_up(brief: _Brief) -> Callable[[str, int, int], Any]:
    import torch

    from noisemarket.federated.model import FlatModel
    from noisemarket.federated.protections import Records
    from noisemarket.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise

    torch.set_num_threads(1)
    torch.manual_seed(brief.seed)  # parameters that are not trained are alike in every worker
    opened = {name: shared.open() for name, shared in brief.arrays.items()}
    model = FlatModel(brief.model())

    def view(name: str) -> NDArray[Any]:
        return opened[name][1]  # the memory beside it stays mapped as long as this function lives

    noise: NoiseSource = SecureNoise() if brief.noise == "secure" else SimulatedNoise(brief.seed)

    def tensor(images: NDArray[np.float32]) -> torch.Tensor:
        made = torch.from_numpy(images)
        if made.dim() == 3:
            made = made[:, None]
        if made.dim() == 4:
            made = made.contiguous(memory_format=torch.channels_last)
        return made

    kept: dict[int, Records] = {}

    def records(owner: int) -> Records:
        if owner not in kept:
            where = brief.indices[owner]
            images = tensor(view("train_images")[where])
            kept[owner] = Records(images, torch.from_numpy(view("train_labels")[where].copy()))
        return kept[owner]

    def answer(kind: str, first: int, second: int) -> Any:
        weights = torch.from_numpy(view("weights").astype(np.float32))
        if kind == "score":
            model.weights.copy_(weights)
            images = tensor(view("test_images")[first:second])
            return model.score(images, torch.from_numpy(view("test_labels")[first:second].copy()))
        seed = np.random.SeedSequence(brief.seed, spawn_key=(first, second))
        torch.manual_seed(int(seed.generate_state(1)[0]))  # for models that draw, as by dropout
        view("uploads")[second] = brief.protection.upload(
            model,
            weights,
            records(second),
            float(brief.sigma[second]),
            noise.stream(second, first),
            np.random.default_rng(seed),
        )
        return None

    return answer
