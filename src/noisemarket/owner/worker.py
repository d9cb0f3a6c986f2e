"""The other side of the embedded engine: what a worker process gets, and what it does."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, parent_process, process
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import single_precision
from noisemarket.federated.models.model import ModelMaker, Records
from noisemarket.federated.protections import Protection
from noisemarket.owner.round import OwnerTrainer
from noisemarket.owner.shared_arrays import SharedArrays
from noisemarket.privacy.noise import NoiseSource

UNGUARDED = 87
"""Exit code of a worker that was about to train by itself."""

MOST_KEPT = 2**28
"""Bytes of owners' records that a worker keeps from round to round; others it takes anew."""


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker gets once, before its first task."""

    model: ModelMaker
    protection: Protection
    seed: int
    noise: NoiseSource
    sigma: NDArray[np.float64]
    indices: tuple[NDArray[np.int64], ...]


def leave_unless_main() -> None:
    """End a worker that, importing the script it serves, is about to train by itself.

    A script that trains outside of ``if __name__ == "__main__"`` would start workers of workers.
    The parent knows the exit code, and says what to do.
    """
    if getattr(process.current_process(), "_inheriting", False):
        sys.exit(UNGUARDED)


def work(pipe: connection.Connection, shared: SharedArrays) -> None:
    """A worker's life: answer tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the pipe
    Thread(target=end_with_parent, daemon=True).start()
    answer: Callable[[str, int, int], Any] | None = None
    try:
        pickled = pipe.recv_bytes()
        while True:
            task = pipe.recv()
            try:
                if answer is None:
                    answer = _set_up(pickled, shared)
                reply: tuple[str | None, Any] = (None, answer(*task))
            except Exception as problem:
                reply = (error_line(problem), None)
            pipe.send(reply)
    except (EOFError, OSError):
        return


def end_with_parent() -> None:
    """Wait for the parent's end, and end this process with it, whatever it is doing."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def error_line(problem: Exception) -> str:
    """An error in one line."""
    kind = "" if isinstance(problem, NoisemarketError) else f"{type(problem).__name__}: "
    return " ".join(f"{kind}{problem}".split()).rstrip(".")


def _set_up(pickled: bytes, shared: SharedArrays) -> Callable[[str, int, int], Any]:
    try:
        config: WorkerConfig = pickle.loads(pickled)
    except (AttributeError, ImportError) as problem:
        raise NoisemarketError(
            f"{problem}; workers import the model, so put it into a file and import it from there"
        ) from None
    model = config.model(config.seed)
    trainer, views = OwnerTrainer(model, config.protection, config.seed), shared.views
    kept: dict[int, Records] = {}
    room = MOST_KEPT

    def records(owner: int) -> Records:
        nonlocal room
        if owner in kept:
            return kept[owner]
        own = config.indices[owner]
        inputs = views["train_images"][own]
        own_records = model.records(inputs, views["train_labels"][own])
        if inputs.nbytes <= room:
            kept[owner] = own_records
            room -= inputs.nbytes
        return own_records

    def answer(kind: str, first: int, second: int) -> Any:
        weights, part = views["weights"], slice(first, second)
        if kind == "score":
            inputs, labels = views["test_images"][part], views["test_labels"][part]
            with model.one_thread():
                return model.score(single_precision(weights), inputs, labels.copy())
        views["uploads"][second] = trainer.upload(
            first, weights, second, records(second), float(config.sigma[second]), config.noise
        )
        return None

    return answer
