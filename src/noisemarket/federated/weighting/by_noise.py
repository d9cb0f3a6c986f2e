"""Owners count by how exact their updates are, as far as contracts tell."""

from __future__ import annotations

import numpy as np

from noisemarket.federated.weighting.weighting import FloatArray, PublicFigures, Weighting

SPREAD = 0.5
"""The variance of an owner's own update on each weight, noise apart, times its records."""


class Noise(Weighting):
    """Minimum-variance weights: 1 / (sigma^2 + ``SPREAD`` / records).

    An upload with sigma 0.1 tells 36 times as much as one with 0.6. With next to no noise, what an
    owner's few records happen to be takes its place.
    """

    name = "noise"

    def weights(self, figures: PublicFigures) -> FloatArray:
        weights: FloatArray = 1.0 / (figures.sigma**2 + SPREAD / np.maximum(figures.records, 1))
        return weights
