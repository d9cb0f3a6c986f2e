"""Owners count by how exact their updates are, as far as contracts tell."""

from __future__ import annotations

import numpy as np

from noisemarket.federated.weighting.weighting import FloatArray, PublicFigures, Weighting

SPREAD = 1.0
"""The variance of an owner's own update on each weight, noise apart, times its records."""

UNEVENNESS = 0.04
"""How much owners with one label each differ, as a variance beside that of the noise. It is chosen
by what it does to a model of ten labels in 30 rounds: unlike noise, an owner's labels are the same
in every round."""

LABELS = 10


class Noise(Weighting):
    """Signal over variance: ``sqrt(records) / (sigma^2 + SPREAD / records + between)``.

    An upload with sigma 0.1 tells up to 36 times as much as one with 0.6. With next to no noise,
    what an owner's few records happen to be takes its place, and how much owners differ:
    ``between`` is ``UNEVENNESS / (10 beta + 1)^2``. Without it a model of uneven data follows the
    labels of a few sellers, and may be worse than if nobody had sold. What the shards of an owner
    agree on, each cut to one length, grows about with the root of their records.
    For owners of one size these are the minimum-variance weights.
    """

    name = "noise"

    def weights(self, figures: PublicFigures) -> FloatArray:
        records = np.maximum(figures.records, 1).astype(float)
        between = UNEVENNESS / (LABELS * figures.beta + 1.0) ** 2
        weights: FloatArray = np.sqrt(records) / (figures.sigma**2 + SPREAD / records + between)
        return weights
