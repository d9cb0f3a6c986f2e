"""Labelled records of the curator's own: where a model that learns would go from here.

They are kept apart from the owners' records and from the test images. Directions that follow from
them and from the global model alone have nothing to do with any owner's noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.data import Dataset, Images, Labels
from noisemarket.federated.engine import Weights, single_precision
from noisemarket.federated.models.model import ModelMaker
from noisemarket.files import digest


@dataclass(frozen=True, eq=False)
class ReferenceRecords:
    """The curator's own records, as a model gets them, and their labels."""

    inputs: NDArray[np.float32]
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


def set_aside(
    data: Dataset, number: int, rng: np.random.Generator
) -> tuple[Dataset, ReferenceRecords]:
    """The data without some training records, which are the curator's, and these."""
    records = len(data.train_labels)
    if 2 * number > records:
        remedy = f"give at most half of the {records:,} training records."
        raise BadInput("market.reference_records", number, remedy)
    own = np.zeros(records, dtype=bool)
    own[rng.choice(records, number, replace=False)] = True
    kept = ReferenceRecords(data.ready(data.train_images[own]), data.train_labels[own])
    left: Images = data.train_images[~own]
    labels = data.train_labels[~own]
    for part in (left, labels):
        part.setflags(write=False)
    return replace(data, train_images=left, train_labels=labels), kept


class Judging(Protocol):
    """Directions along which uploads are judged, from a global model."""

    def __len__(self) -> int: ...

    def at(self, weights: Weights) -> NDArray[np.float32]:
        """One row for each direction."""


def directions_digest(rows: NDArray[np.float32]) -> str:
    """What tells directions from any others, as hexadecimal digits.

    A curator that has given it out before the uploads cannot judge them along others afterwards.

    Example:
        >>> directions_digest(np.zeros((2, 3), np.float32))[:8]
        '4e7f0d79'
    """
    shape = f"noisemarket directions v1\0{rows.shape}".encode()
    return digest(shape, np.ascontiguousarray(rows, "<f4").tobytes()).hex()


class Directions:
    """Where reference records would have a model go: one direction for each class, one for all.

    A direction is the negative gradient of the mean loss of these records. Each class has its own
    because owners differ: one with two classes moves along these, and may well move against the
    gradient of all records together.
    """

    def __init__(self, model: ModelMaker, seed: int, records: ReferenceRecords) -> None:
        self._model = model(seed)
        labels = np.unique(records.labels)
        groups = [np.flatnonzero(records.labels == label) for label in labels]
        self._groups = [
            self._model.records(records.inputs[own], records.labels[own].copy())
            for own in (*groups, np.arange(len(records)))
        ]

    def __len__(self) -> int:
        return len(self._groups)

    def at(self, weights: Weights) -> NDArray[np.float32]:
        """The directions from a global model, one row for each; the last is that of all records."""
        start = single_precision(weights)
        rows = np.empty((len(self), start.size), np.float32)
        with self._model.one_thread():
            for row, group in zip(rows, self._groups, strict=True):
                moved = start.copy()
                self._model.descend(moved, group, 1.0)
                np.subtract(moved, start, out=row)
        return np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
