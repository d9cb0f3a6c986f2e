"""How noisy a weighted mean of updates is, and how many owners it rests on: public figures."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def effective_noise(sigma: ArrayLike, weights: ArrayLike) -> float:
    """The one sigma for all owners, weighed alike, that would leave the mean as noisy.

    Args:
        sigma: each owner's noise.
        weights: each owner's weight; only their ratios count.

    Returns:
        The noise, in the units of ``sigma``.

    Example:
        >>> effective_noise([0.3, 0.3, 0.3, 0.3], [1.0, 1.0, 1.0, 1.0])
        0.3
    """
    noise, weight = np.asarray(sigma, dtype=float), np.asarray(weights, dtype=float)
    spread = math.sqrt(float((weight**2 * noise**2).sum()))
    return math.sqrt(len(weight)) * spread / float(weight.sum())


def effective_share(weights: ArrayLike) -> float:
    """The part of the owners that the mean rests on: 1 if all count alike, 1/N if only one does.

    Args:
        weights: each owner's weight; only their ratios count.

    Returns:
        A number from 1/N to 1.

    Example:
        >>> effective_share([1.0, 1.0, 0.0, 0.0])
        0.5
    """
    weight = np.asarray(weights, dtype=float)
    return float(weight.sum()) ** 2 / (len(weight) * float((weight**2).sum()))
