"""Owners count by how many records they have, as in FedAvg."""

from __future__ import annotations

from noisemarket.federated.weighting.weighting import FloatArray, PublicFigures, Weighting


class DataSize(Weighting):
    """A weight in proportion to the number of records."""

    name = "data_size"

    def weights(self, figures: PublicFigures) -> FloatArray:
        return figures.records.astype(float)
