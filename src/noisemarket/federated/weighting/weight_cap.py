"""No owner counts for more than a share of the mean: that bounds what one can do to the model."""

from __future__ import annotations

import numpy as np

from noisemarket.federated.weighting.weighting import FloatArray


def capped(weights: FloatArray, cap: float) -> FloatArray:
    """The weights, the largest lowered to one value, so that none is more than ``cap`` of all.

    Args:
        weights: not negative.
        cap: the largest share, above 0; 1 for no limit. Below one owner's equal share all count
            alike.

    Example:
        >>> capped(np.array([6.0, 1.0, 1.0]), 0.5).tolist()
        [2.0, 1.0, 1.0]
    """
    if cap >= 1.0 or not weights.size or not weights.max() > cap * weights.sum():
        return weights
    counting = weights > 0.0
    if cap * counting.sum() <= 1.0:
        return np.where(counting, 1.0, 0.0)
    falling = np.sort(weights)[::-1]
    left = float(weights.sum())
    for lowered in range(1, len(falling)):  # how many are lowered to the same weight
        left -= float(falling[lowered - 1])
        top = cap * left / (1.0 - lowered * cap)
        if top >= falling[lowered]:
            break
    return np.minimum(weights, top)
