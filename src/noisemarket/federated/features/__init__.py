"""Feature maps: what a linear model sees of a record."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from noisemarket.federated.features.edges import Edges
from noisemarket.federated.features.features import FeatureMap
from noisemarket.federated.features.vectors import UnitVectors


def features_for(records: NDArray[Any]) -> FeatureMap:
    """The features of records of this shape: edges of pictures, vectors as they are."""
    return UnitVectors(records.shape[1]) if records.ndim == 2 else Edges()


__all__ = ["Edges", "FeatureMap", "UnitVectors", "features_for"]
