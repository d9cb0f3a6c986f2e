"""The other side of the embedded engine: what a worker process is told, and what it does."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, parent_process, process, shared_memory
from threading import Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import at_model
from noisemarket.federated.model import FlatModel, ModelMaker, tensor
from noisemarket.federated.protections import Protection, Records
from noisemarket.privacy.noise import Diverged, NoiseSource

UNGUARDED = 87
"""Exit code of a worker that was about to train by itself."""


@dataclass(frozen=True)
class Shared:
    """An array in shared memory, by name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def open(self) -> tuple[shared_memory.SharedMemory, NDArray[Any]]:
        memory = shared_memory.SharedMemory(name=self.name)
        return memory, np.ndarray(self.shape, self.dtype, buffer=memory.buf)


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is told once."""

    model: ModelMaker
    protection: Protection
    seed: int
    noise: NoiseSource
    sigma: NDArray[np.float64]
    indices: tuple[NDArray[np.int64], ...]
    arrays: dict[str, Shared]


def leave_unless_main() -> None:
    """End a worker that, importing the script it serves, is about to train by itself.

    A script that trains outside of ``if __name__ == "__main__"`` would start workers of workers.
    The parent knows the exit code, and says what to do.
    """
    if getattr(process.current_process(), "_inheriting", False):
        sys.exit(UNGUARDED)


def work(pipe: connection.Connection) -> None:
    """A worker's life: answer tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the pipe
    Thread(target=_end_with_parent, daemon=True).start()
    answer: Callable[[str, int, int], Any] | None = None
    try:
        told = pipe.recv_bytes()
        while True:
            task = pipe.recv()
            try:
                if answer is None:
                    answer = _set_up(_brief(told))
                reply: tuple[str | None, Any] = (None, answer(*task))
            except Exception as problem:
                reply = (_said(problem), None)
            pipe.send(reply)
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _brief(told: bytes) -> WorkerConfig:
    try:
        brief: WorkerConfig = pickle.loads(told)
    except (AttributeError, ImportError) as problem:
        raise NoisemarketError(
            f"{problem}; workers import the model, so put it into a file and import it from there"
        ) from None
    return brief


def _said(problem: Exception) -> str:
    """An error in one line."""
    kind = "" if isinstance(problem, NoisemarketError) else f"{type(problem).__name__}: "
    return " ".join(f"{kind}{problem}".split()).rstrip(".")


def _set_up(brief: WorkerConfig) -> Callable[[str, int, int], Any]:
    torch.set_num_threads(1)
    torch.manual_seed(brief.seed)  # parameters that are not trained are alike in every worker
    opened = {name: shared.open() for name, shared in brief.arrays.items()}
    model = FlatModel(brief.model())

    def view(name: str) -> NDArray[Any]:
        return opened[name][1]  # the memory beside it stays mapped as long as this function lives

    kept: dict[int, Records] = {}

    def records(owner: int) -> Records:
        if owner not in kept:
            where = brief.indices[owner]
            images = tensor(view("train_images")[where])
            kept[owner] = Records(images, torch.from_numpy(view("train_labels")[where].copy()))
        return kept[owner]

    def answer(kind: str, first: int, second: int) -> Any:
        with np.errstate(over="ignore"):  # a model that has diverged
            weights = torch.from_numpy(view("weights").astype(np.float32))
        if kind == "score":
            model.weights.copy_(weights)
            images = tensor(view("test_images")[first:second])
            return model.score(images, torch.from_numpy(view("test_labels")[first:second].copy()))
        seed = np.random.SeedSequence(brief.seed, spawn_key=(first, second))
        torch.manual_seed(int(seed.generate_state(1)[0]))  # for models that draw, as by dropout
        try:
            view("uploads")[second] = brief.protection.upload(
                model,
                weights,
                records(second),
                float(brief.sigma[second]),
                at_model(brief.noise, view("weights")).stream(second, first),
                np.random.default_rng(seed),
            )
        except Diverged:
            view("uploads")[second] = np.nan  # refused as not finite; the others count
        return None

    return answer
