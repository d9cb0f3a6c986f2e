"""Features of one's own: vectors, such as the embeddings of a frozen pre-trained model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.features.features import FeatureMap, Floats, unit


@dataclass(frozen=True)
class UnitVectors(FeatureMap):
    """Vectors as they are given, each scaled to length 1; one of zeros stays so.

    Args:
        dimension: how many numbers a vector has.

    Example:
        >>> UnitVectors(2).extract(np.array([[3.0, 4.0]], np.float32)).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    dimension: int
    name = "unit-vectors"
    version = 1

    def check(self, records: NDArray[Any]) -> None:
        if records.ndim != 2 or records.shape[1] != self.dimension:
            shape = " x ".join(map(str, records.shape[1:]))
            raise BadInput(
                "data", f"items of {shape}", f"give vectors of {self.dimension} numbers."
            )

    def extract(self, records: NDArray[Any]) -> Floats:
        """The vectors (number, dimension), scaled."""
        self.check(records)
        columns = np.ascontiguousarray(records.T, dtype=np.float64)
        return np.ascontiguousarray(unit(columns).T, dtype=np.float32)
