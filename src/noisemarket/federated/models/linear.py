"""A linear softmax classifier on fixed features, in NumPy: scores W x, without a bias."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from noisemarket.federated.models.model import (
    AT_ONCE,
    CLIP_MARGIN,
    LARGEST_NORM,
    Flat,
    Labels,
    Model,
    ModelMaker,
    Records,
    shard_stacks,
)

Double = NDArray[np.float64]

SUMMED = 32
"""Steps of single records that are added in single precision; their sums in double."""
SINGLE = 2.0**-24
"""Unit roundoff of single precision: a sum of squares is off by at most one for each of them."""
SHORTEST = 1e-15
"""Residuals shorter than this count as that long: squares of shorter ones might underflow."""
SMALL = 200_000
"""Multiplications in one product of matrices: BLAS copies the factors of larger ones first."""
TOGETHER = 2**14
"""Weights of the owners that train together: few enough to stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class LinearRecords(Records):
    """Features (number, dimension) in one block of memory, and their labels."""

    features: Flat
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def added_bytes(self) -> int:
        return self.labels.size * 8

    def take(self, indices: NDArray[np.int64]) -> LinearRecords:
        return LinearRecords(self.features[indices], self.labels[indices])

    @cached_property
    def lengths(self) -> Double:
        """The norms of the features."""
        return _lengths(self.features)


class LinearModel(Model):
    """Softmax regression without bias, from weights of zero."""

    def __init__(self, classes: int, dimension: int) -> None:
        self.classes, self.dimension = classes, dimension

    def __len__(self) -> int:
        return self.classes * self.dimension

    @property
    def lot(self) -> int:
        return max(1, TOGETHER // len(self))

    def first_weights(self) -> Flat:
        return np.zeros(len(self), np.float32)

    def layers(self) -> dict[str, slice]:
        width = self.dimension
        return {
            f"class {row}": slice(row * width, (row + 1) * width) for row in range(self.classes)
        }

    def records(self, inputs: NDArray[np.float32], labels: Labels) -> LinearRecords:
        return LinearRecords(np.ascontiguousarray(inputs), np.ascontiguousarray(labels))

    def descend(self, weights: Flat, records: Records, rate: float) -> None:
        own = _own(records)
        with np.errstate(all="ignore"):
            wrong = self._residuals(self._scores(weights, own.features), own.labels)
            step = np.float32(rate / len(own))
            weights -= (step * (wrong @ own.features)).reshape(-1)

    def clipped_gradient(self, weights: Flat, records: Records, clip: float) -> Flat:
        [(scaled, features)] = self._clipped(weights, [_own(records)], 1.0, clip)
        summed: Flat = np.dot(scaled, features).reshape(-1)
        return summed

    def _clipped(
        self, weights: Flat, lot: Sequence[LinearRecords], rate: float, clip: float
    ) -> Iterator[tuple[Flat, Flat]]:
        """The factors r and x of the records' steps up the slope, r x', each cut to norm ``clip``;
        without records whose step is not finite. One pair for each owner.

        Owners have a product each, whose bits may depend on its shape; all else is done at once.
        """
        ends = np.cumsum([len(own) for own in lot]).tolist()
        places = [slice(end - len(own), end) for own, end in zip(lot, ends, strict=True)]
        labels = np.concatenate([own.labels for own in lot])
        lengths = np.concatenate([own.lengths for own in lot])
        wrong = np.empty((self.classes, ends[-1]), np.float32)
        with np.errstate(all="ignore"):
            for own, place in zip(lot, places, strict=True):
                self._scores(weights, own.features, wrong[:, place])
            wrong = self._residuals(wrong, labels)
            left = np.sqrt(np.square(wrong).sum(axis=0))  # of numbers from -1 to 1, or a NaN
            length = np.maximum(left, SHORTEST) * lengths  # the norm of an outer product
            most = clip * (CLIP_MARGIN - self.classes * SINGLE)
            # A factor that is infinite in single precision would spoil the others' steps, too.
            wrong *= np.minimum(min(rate, LARGEST_NORM), most / length).astype(np.float32)
            good = np.maximum(length, lengths) < LARGEST_NORM  # not so for a NaN
        every = good.all()
        for own, place in zip(lot, places, strict=True):
            up, kept = wrong[:, place], good[place]
            yield (up, own.features) if every else (up[:, kept], own.features[kept])

    def shard_updates(
        self, start: Flat, records: Records, shards: int, steps: int, rate: float
    ) -> Iterator[Flat]:
        own = _own(records)
        for stack in shard_stacks(len(own), shards, max(1, AT_ONCE // len(self))):
            rows, labels = own.features[stack], own.labels[stack]
            with np.errstate(all="ignore"):  # an update that is not finite counts for nothing
                moved: Any = np.float32(0.0)
                here = self._rows(start)
                for _ in range(steps):
                    wrong = self._residuals(np.matmul(here, rows.swapaxes(-1, -2)), labels)
                    wrong *= np.float32(-rate / labels.shape[1])
                    moved = moved + np.matmul(wrong, rows)
                    here = self._rows(start) + moved
                yield moved.reshape(len(labels), -1)

    def record_steps(
        self, start: Flat, lot: Sequence[Records], rate: float, clip: float
    ) -> Iterator[Double]:
        own = [_own(records) for records in lot]
        # The sums over the classes of a single record have another order.
        alone = any(len(records) < 2 for records in own)
        for some in [[one] for one in own] if alone else [own]:
            yield from self._sums_of_steps(start, some, rate, clip)

    def _sums_of_steps(
        self, start: Flat, lot: Sequence[LinearRecords], rate: float, clip: float
    ) -> Iterator[Double]:
        for up, x in self._clipped(start, lot, rate, clip):
            even = len(x) // SUMMED * SUMMED
            lots = up[:, :even].reshape(self.classes, -1, SUMMED).swapaxes(0, 1)
            sums = np.matmul(lots, x[:even].reshape(-1, SUMMED, self.dimension))
            total: Double = sums.sum(axis=0, dtype=np.float64) + up[:, even:] @ x[even:]
            yield -total.reshape(-1)

    def score(
        self, weights: Flat, inputs: NDArray[np.float32], labels: Labels
    ) -> tuple[int, float]:
        with np.errstate(all="ignore"):  # a model that has diverged
            scores = self._scores(weights, inputs)
            scores -= scores.max(axis=0)
            right = int((scores.argmax(axis=0) == labels).sum())
            own = scores[labels, np.arange(len(labels))].astype(np.float64)
            losses = np.log(np.exp(scores).sum(axis=0, dtype=np.float64)) - own
            return right, float(losses.sum())

    def aim(self, weights: Flat, inputs: NDArray[np.float32], scores: NDArray[np.float32]) -> Flat:
        x = inputs[0]
        lacking = scores - self._rows(weights) @ x
        return weights + np.outer(lacking, x / np.dot(x, x)).reshape(-1)

    def _rows(self, weights: Flat) -> Flat:
        return weights.reshape(-1, self.dimension)

    def _scores(self, weights: Flat, features: Flat, out: Flat | None = None) -> Flat:
        """The scores of records, (classes, records), from small products of so many records."""
        most = max(1, SMALL // len(self))
        even, rows = len(features) // most * most, self._rows(weights)
        scores = np.empty((self.classes, len(features)), np.float32) if out is None else out
        blocks = features[:even].reshape(-1, most, self.dimension).swapaxes(1, 2)
        np.matmul(rows, blocks, out=scores[:, :even].reshape(self.classes, -1, most).swapaxes(0, 1))
        np.matmul(rows, features[even:].T, out=scores[:, even:])
        return scores

    def _residuals(self, scores: Flat, labels: Labels) -> Flat:
        """The gradient of each record's loss in its scores (..., classes, records), in place."""
        scores -= scores.max(axis=-2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-2, keepdims=True)
        right = labels[..., None, :] == np.arange(self.classes)[:, None]
        scores -= right.astype(np.float32)
        return scores


@dataclass(frozen=True)
class LinearMaker(ModelMaker):
    """Makes a ``LinearModel`` for so many classes and so many features of a record."""

    classes: int
    dimension: int

    def __call__(self, seed: int) -> LinearModel:
        return LinearModel(self.classes, self.dimension)

    def size(self) -> int:
        return self.classes * self.dimension

    def identity(self) -> bytes:
        blas = [one.get("architecture") for one in threadpool_info() if "numpy" in one["filepath"]]
        machine = platform.machine(), np.__version__, np.show_config("dicts")["SIMD Extensions"]
        return repr((self.classes, self.dimension, machine, blas)).encode()

    def settings(self) -> dict[str, Any]:
        return {"kind": "linear", "classes": self.classes, "dimension": self.dimension}


def _own(records: Records) -> LinearRecords:
    assert isinstance(records, LinearRecords)
    return records


def _lengths(rows: Flat) -> NDArray[np.float64]:
    """Norms in double precision: neither overflow nor underflow of single can matter."""
    lengths: Double = np.linalg.norm(rows.astype(np.float64), axis=1)
    return lengths
