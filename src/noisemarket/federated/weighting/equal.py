"""All owners count alike."""

from __future__ import annotations

import numpy as np

from noisemarket.federated.weighting.weighting import FloatArray, PublicFigures, Weighting


class Equal(Weighting):
    """The same weight for every owner."""

    name = "equal"

    def weights(self, figures: PublicFigures) -> FloatArray:
        return np.ones(len(figures))
