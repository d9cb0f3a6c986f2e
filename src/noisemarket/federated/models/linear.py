"""A linear softmax classifier on fixed features, in NumPy: scores W x, without a bias.

Records are addressed where they lie: shard s of k is every k-th row from s on, so that shards of
one size are one array with three axes.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
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
)

Double = NDArray[np.float64]

FEW = 64
"""Records of a shard whose norm is computed from products; in larger ones from the update."""
CANCELLED = 1e-3
_BLOCK = 4096  # records whose features are in double precision at a time


@dataclass(frozen=True, eq=False)
class LinearRecords(Records):
    """Features (number, dimension) in one block of memory, and their labels."""

    features: Flat
    labels: Labels
    _products: dict[int, Double] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> LinearRecords:
        return LinearRecords(self.features[indices], self.labels[indices])

    def longest(self) -> float:
        """The greatest length of a record's features; NaN if there is one."""
        return float(_lengths(self.features).max(initial=0.0))

    def products(self, shards: int) -> Double:
        """The products of features within each shard, (shards, records, records); computed once."""
        if shards not in self._products:
            size, width = -(-len(self) // shards), self.features.shape[1]
            rows = np.zeros((size * shards, width))
            rows[: len(self)] = self.features
            stacked = rows.reshape(size, shards, width).swapaxes(0, 1)
            self._products[shards] = np.matmul(stacked, stacked.swapaxes(1, 2))
        return self._products[shards]

    def stacks(self, shards: int, most: int) -> Iterator[tuple[Flat, Labels]]:
        """Views of shards of one size, (shards, records, dimension), with their labels; at most
        ``most`` shards at a time."""
        full, more = divmod(len(self), shards)
        step = self.features.strides[0]
        for first, last, size in ((0, more, full + 1), (more, shards, full)):
            if size == 0:
                continue
            for at in range(first, last, most):
                count = min(most, last - at)
                rows = as_strided(
                    self.features[at:], (count, size, self.features.shape[1]),
                    (step, shards * step, self.features.itemsize), writeable=False,
                )  # fmt: skip
                width = self.labels.strides[0]
                marks = as_strided(
                    self.labels[at:], (count, size), (width, shards * width), writeable=False
                )
                yield rows, marks


class LinearModel(Model):
    """Softmax regression without bias, from weights of zero."""

    def __init__(self, classes: int, dimension: int) -> None:
        self.classes, self.dimension = classes, dimension

    def __len__(self) -> int:
        return self.classes * self.dimension

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
            wrong = self._residuals(own.features @ self._rows(weights).T, own.labels)
            step = np.float32(rate / len(own))
            weights -= (step * (wrong.T @ own.features)).reshape(-1)

    def clipped_gradient(self, weights: Flat, records: Records, clip: float) -> Flat:
        own = _own(records)
        with np.errstate(all="ignore"):
            wrong = self._residuals(own.features @ self._rows(weights).T, own.labels)
            # A record's gradient is an outer product; its norm is the product of both norms.
            left, right = _lengths(wrong), _lengths(own.features)
            length = left * right
            share = np.minimum(1.0, CLIP_MARGIN * clip / np.maximum(length, 1e-300))
            good = (length < LARGEST_NORM) & (np.maximum(left, right) < LARGEST_NORM)  # no NaN
            scaled: Flat = wrong * share.astype(np.float32)[:, None]
        if not good.all():
            scaled, own = scaled[good], own.take(np.flatnonzero(good))
        summed: Flat = np.dot(scaled.T, own.features).reshape(-1)
        return summed

    def shard_updates(
        self, start: Flat, records: Records, shards: int, steps: int, rate: float
    ) -> Iterator[Flat]:
        for rows, labels in _own(records).stacks(shards, max(1, AT_ONCE // len(self))):
            with np.errstate(all="ignore"):  # an update that is not finite counts for nothing
                moved: Any = np.float32(0.0)
                here = self._rows(start)
                for _ in range(steps):
                    wrong = self._residuals(np.matmul(rows, here.swapaxes(-1, -2)), labels)
                    wrong *= np.float32(-rate / labels.shape[1])
                    moved = moved + np.matmul(wrong.swapaxes(-1, -2), rows)
                    here = self._rows(start) + moved
                yield moved.reshape(len(labels), -1)

    def clipped_steps(
        self, start: Flat, records: Records, shards: int, rate: float, clip: float
    ) -> Double:
        """Without forming any update: the squared norm of a shard's gradient, the sum of outer
        products r_i x_i', is the sum of (r_i . r_j)(x_i . x_j) over its pairs of records."""
        own = _own(records)
        size = -(-len(own) // shards)
        if size > FEW:
            return super().clipped_steps(start, records, shards, rate, clip)
        with np.errstate(all="ignore"):
            wrong = np.zeros((size * shards, self.classes))
            scores = own.features @ self._rows(start).T
            wrong[: len(own)] = self._residuals(scores, own.labels)
            by_shard = wrong.reshape(size, shards, self.classes)
            inner = np.einsum("isc,jsc->sij", by_shard, by_shard)
            outer = own.products(shards)
            square = (inner * outer).sum(axis=(1, 2))
            # Where the parts cancel, rounding could hide the norm: none counts as shorter than
            # CANCELLED times the sum of its parts' norms.
            parts = np.sqrt(np.einsum("sii,sii->si", inner, outer)).sum(axis=1)
            length = np.sqrt(np.maximum(square, np.square(CANCELLED * parts)))
            full, more = divmod(len(own), shards)
            held = full + (np.arange(shards) < more)
            share = np.minimum(rate / held, CLIP_MARGIN * clip / np.maximum(length, 1e-300))
            good = np.tile(np.isfinite(length), size)[: len(own)]
            scaled = (by_shard * -share[:, None]).reshape(wrong.shape)[: len(own)]
        total = np.zeros((self.classes, self.dimension))
        for at in range(0, len(own), _BLOCK):
            block = slice(at, at + _BLOCK)
            part, features = scaled[block], own.features[block]
            if not good[block].all():
                part, features = part[good[block]], features[good[block]]
            total += part.T @ features.astype(np.float64)
        return total.reshape(-1)

    def score(
        self, weights: Flat, inputs: NDArray[np.float32], labels: Labels
    ) -> tuple[int, float]:
        with np.errstate(all="ignore"):  # a model that has diverged
            scores = (inputs @ self._rows(weights).T).astype(np.float64)
            scores -= scores.max(axis=1, keepdims=True)
            right = int((scores.argmax(axis=1) == labels).sum())
            losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]
            return right, float(losses.sum())

    def aim(self, weights: Flat, inputs: NDArray[np.float32], scores: NDArray[np.float32]) -> Flat:
        x = inputs[0]
        lacking = scores - self._rows(weights) @ x
        return weights + np.outer(lacking, x / np.dot(x, x)).reshape(-1)

    def _rows(self, weights: Flat) -> Flat:
        return weights.reshape(-1, self.dimension)

    def _residuals(self, scores: Flat, labels: Labels) -> Flat:
        """The gradient of each record's loss in its scores, in the place of the scores."""
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        flat = scores.reshape(-1, scores.shape[-1])
        flat[np.arange(labels.size), labels.reshape(-1)] -= 1.0
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
    precise = rows.astype(np.float64)
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nk,nk->n", precise, precise))
    return lengths
