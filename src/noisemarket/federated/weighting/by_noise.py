"""Owners count by how exact their updates are, as far as contracts tell."""

from __future__ import annotations

import numpy as np

from noisemarket.federated.weighting.weighting import FloatArray, PublicFigures, Weighting

SPREAD = 1.0
"""The variance of an owner's own update on each weight, noise apart, times its records."""


class Noise(Weighting):
    """Signal over variance: sqrt(records) / (sigma^2 + ``SPREAD`` / records).

    An upload with sigma 0.1 tells 36 times as much as one with 0.6. With next to no noise, what an
    owner's few records happen to be takes its place. What the shards of an owner agree on, each cut
    to one length, grows about with the root of their records. For owners of one size these are the
    minimum-variance weights.
    """

    name = "noise"

    def weights(self, figures: PublicFigures) -> FloatArray:
        records = np.maximum(figures.records, 1).astype(float)
        weights: FloatArray = np.sqrt(records) / (figures.sigma**2 + SPREAD / records)
        return weights
