"""The model interface over flat vectors: ``linear`` needs NumPy, ``torch_model`` torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Flat = NDArray[np.float32]
"""All weights of a model, or a change of them, as one vector."""
Labels = NDArray[np.int64]

CLIP_MARGIN = 1.0 - 1e-6
"""Updates and gradients are clipped this much lower: single precision must not take them beyond."""
LARGEST_NORM = 1e30
"""Nor can it scale what has such a norm down exactly: it counts for nothing."""
AT_ONCE = 2**24
"""Weights of the shards that are trained at once, which bounds the memory."""


class Records(ABC):
    """An owner's records in the form that its model works with."""

    @property
    def added_bytes(self) -> int | None:
        """What it keeps besides the arrays that it was made of; None if it copies those."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """How many records there are."""

    @abstractmethod
    def take(self, indices: NDArray[np.int64]) -> Records:
        """Some of the records, in this order."""


class Model(ABC):
    """A classifier that can be trained from any weights; it keeps none from call to call.

    What it computes must follow from the arguments alone, bit by bit.
    """

    @property
    def lot(self) -> int:
        """How many owners train together; 1 for a model that draws while it trains."""
        return 1

    def __len__(self) -> int:
        """The number of weights."""
        return len(self.first_weights())

    @abstractmethod
    def first_weights(self) -> Flat:
        """The weights that training starts from; the caller's to keep."""

    @abstractmethod
    def layers(self) -> dict[str, slice]:
        """The parts of the model by name, and where they lie in the flat vector, in order."""

    @abstractmethod
    def records(self, inputs: NDArray[np.float32], labels: Labels) -> Records:
        """An owner's data, ready for this model; inputs are as ``Dataset.ready`` gives them."""

    @abstractmethod
    def descend(self, weights: Flat, records: Records, rate: float) -> None:
        """One step of SGD on the mean cross-entropy of the records; changes ``weights``."""

    @abstractmethod
    def clipped_gradient(self, weights: Flat, records: Records, clip: float) -> Flat:
        """The sum of the records' loss gradients, each cut to norm ``clip``, or 0 if not finite."""

    @abstractmethod
    def shard_updates(
        self, start: Flat, records: Records, shards: int, steps: int, rate: float
    ) -> Iterator[Flat]:
        """What each shard makes of ``start`` in some steps of SGD on its records, less ``start``.

        Record i stands in shard i modulo ``shards``. The updates come in groups, one row for each
        shard that has a record, in any order.
        """

    def record_steps(
        self, start: Flat, lot: Sequence[Records], rate: float, clip: float
    ) -> Iterable[NDArray[np.float64]]:
        """Of each of some owners the sum over its records of one step's update, each cut to norm
        ``clip``, or 0 if not finite: the same bits as of each owner alone. A model may know a
        quicker way."""
        for records in lot:
            total = np.zeros(len(start))
            for updates in self.shard_updates(start, records, max(1, len(records)), 1, rate):
                total += clipped_sum(updates, clip)
            yield total

    @abstractmethod
    def score(
        self, weights: Flat, inputs: NDArray[np.float32], labels: Labels
    ) -> tuple[int, float]:
        """The number of right answers, and the sum of the losses."""

    @abstractmethod
    def aim(self, weights: Flat, inputs: NDArray[np.float32], scores: NDArray[np.float32]) -> Flat:
        """Other weights, at which a single input has these scores if possible: for audits."""

    def reseed(self, seed: np.random.SeedSequence) -> None:  # noqa: B027 - most draw nothing
        """Set what a model draws while it trains, as by dropout."""

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Compute with one thread meanwhile: sums then have one order, and small ones are quick."""
        with _libraries().limit(limits=1, user_api="blas"):
            yield


class ModelMaker(ABC):
    """Makes the model of a job, in every process that trains or tests it. It can be pickled."""

    @abstractmethod
    def __call__(self, seed: int) -> Model:
        """The model; weights that are drawn are drawn from this seed."""

    @abstractmethod
    def size(self) -> int:
        """How many weights the model has; nothing is allocated for them."""

    @abstractmethod
    def identity(self) -> bytes:
        """All that an update's bits follow from besides data, weights and seed."""

    def made_by(self) -> tuple[str, ...]:
        """Libraries that the model adds to those of every job, with their versions, in words."""
        return ()

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What an owner elsewhere makes the same model of (``models.maker_of``): plain values."""


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def shard_stacks(records: int, shards: int, most: int) -> Iterator[NDArray[np.int64]]:
    """The records of shards of one size, a row a shard, at most ``most`` shards at a time; none of
    them is empty."""
    full, more = divmod(records, shards)
    for first, last, size in ((0, more, full + 1), (more, shards, full)):
        for at in range(first, last, most) if size else ():
            own = np.arange(at, min(at + most, last))
            yield own[:, None] + shards * np.arange(size)


def clipped_sum(rows: Flat, clip: float) -> NDArray[np.float64]:
    """The sum of the rows, each cut to norm ``clip``, in a fixed order: always the same bits."""
    precise = rows.astype(np.float64)
    length = np.sqrt(np.einsum("sk,sk->s", precise, precise))
    good = (length > 0.0) & (length < LARGEST_NORM)  # not so for a NaN
    if not good.all():
        precise, length = precise[good], length[good]
    total: NDArray[np.float64] = np.einsum(
        "s,sk->k", np.minimum(1.0, CLIP_MARGIN * clip / length), precise
    )
    return total
