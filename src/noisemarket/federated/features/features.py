"""Fixed features: what a linear model sees of a record, as a pure function of that record alone.

Nothing is learned from, averaged over or compared with anybody's data, so an owner may compute its
features before any protection, and no release depends on more records than before: they cost no
privacy. Every feature map has a name and a version, which stand in the fingerprint of a job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

TINY = 1e-12
"""Shorter records than this are not stretched to length 1."""


class FeatureMap(ABC):
    """Turns records into features, each on its own, with the same bits alone and in any batch.

    Subclasses are frozen dataclasses at the top level of a module. A change of what ``extract``
    gives, be it in the last bit, needs a new ``version``.
    """

    name: str
    version: int
    dimension: int
    """The number of features of a record."""

    @property
    def label(self) -> str:
        """Name and version, for reports and fingerprints."""
        return f"{self.name} v{self.version}"

    @abstractmethod
    def check(self, records: NDArray[Any]) -> None:
        """Refuse records that this map is not for.

        Raises:
            BadInput: they are of another shape, or their values out of range.
        """

    @abstractmethod
    def extract(self, records: NDArray[Any]) -> Floats:
        """The features of some records: (number, dimension).

        Args:
            records: (number, ...), as a dataset holds them.

        Raises:
            BadInput: as ``check``.
        """


def unit(columns: NDArray[Any]) -> NDArray[Any]:
    """Records, one a column, each at length 1; one of zeros stays so.

    With features of length 1, noise of standard deviation s on every weight of a linear model moves
    every score by N(0, s^2), however many features there are.
    """
    lengths = np.sqrt(total(columns * columns))
    scaled: NDArray[Any] = columns / np.maximum(lengths, columns.dtype.type(TINY))
    return scaled


def total(values: NDArray[Any]) -> NDArray[Any]:
    """The sum along the first axis, by halves in an order that depends on its length alone.

    So a record has the same sum alone and among others, where a library's own sum may differ.
    """
    while len(values) > 1:
        half = len(values) // 2
        added = values[:half] + values[half : 2 * half]
        if len(values) % 2:
            added[0] += values[-1]
        values = added
    whole: NDArray[Any] = values[0]
    return whole
