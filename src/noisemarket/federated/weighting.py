"""How much each owner's update counts in the mean: the weightings, and what a mean of them holds.

Weightings of users' own packages join by the entry points ``noisemarket.weightings``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput
from noisemarket.parts import Parts

FloatArray = NDArray[np.float64]

SPREAD = 1.0
"""The variance of an owner's own update on each weight, noise apart, times its records."""

UNEVENNESS = 0.04
"""How much owners with one label each differ, as a variance beside that of the noise. It is chosen
by what it does to a model of ten labels in 30 rounds: unlike noise, an owner's labels are the same
in every round."""

LABELS = 10


@dataclass(frozen=True, eq=False)
class PublicFigures:
    """What everybody may know about the owners before a round: contracts and sizes, never uploads.

    Args:
        sigma: each owner's contracted noise.
        records: how many records each owner has.
        rounds: how many rounds the job has.
        beta: the mean non-IID degree of the owners' data; 1 where nobody has stated it.
    """

    sigma: FloatArray
    records: NDArray[np.int64]
    rounds: int
    beta: float = 1.0

    def __len__(self) -> int:
        return len(self.sigma)


class Weighting(ABC):
    """Weighs the owners' updates by public figures alone, so that it costs no privacy.

    Example:
        A weighting of a user's own, chosen by ``training.weighting = "my_package:RootOfSize"``::

            class RootOfSize(Weighting):
                def weights(self, figures):
                    return np.sqrt(figures.records)
    """

    @abstractmethod
    def weights(self, figures: PublicFigures) -> FloatArray:
        """One weight for each owner, in the owners' order.

        Args:
            figures: what is public about the owners.

        Returns:
            Finite numbers, none negative and not all zero. Only their ratios count.
        """


class Noise(Weighting):
    """Signal over variance: ``sqrt(records) / (sigma^2 + SPREAD / records + between)``.

    An upload with sigma 0.1 tells up to 36 times as much as one with 0.6. With next to no noise,
    what an owner's few records happen to be takes its place, and how much owners differ:
    ``between`` is ``UNEVENNESS / (10 beta + 1)^2``. Without it a model of uneven data follows the
    labels of a few sellers, and may be worse than if nobody had sold. What the shards of an owner
    agree on, each cut to one length, grows about with the root of their records.
    For owners of one size these are the minimum-variance weights.
    """

    def weights(self, figures: PublicFigures) -> FloatArray:
        records = np.maximum(figures.records, 1).astype(float)
        between = UNEVENNESS / (LABELS * figures.beta + 1.0) ** 2
        weights: FloatArray = np.sqrt(records) / (figures.sigma**2 + SPREAD / records + between)
        return weights


class DataSize(Weighting):
    """A weight in proportion to the number of records."""

    def weights(self, figures: PublicFigures) -> FloatArray:
        return figures.records.astype(float)


class Equal(Weighting):
    """The same weight for every owner."""

    def weights(self, figures: PublicFigures) -> FloatArray:
        return np.ones(len(figures))


WEIGHTINGS = Parts[type[Weighting]](
    "training.weighting", {"noise": Noise, "data_size": DataSize, "equal": Equal}, Weighting
)
"""All weightings by name; your own by ``package.module:Name``."""


def owner_weights(weighting: Weighting, figures: PublicFigures) -> FloatArray:
    """The weights of a weighting, checked."""
    weights = np.asarray(weighting.weights(figures), dtype=np.float64)
    if weights.shape != (len(figures),):
        remedy = f"give a one-dimensional array of {len(figures)} weights, one for each owner."
        raise BadInput("training.weighting", f"an array of shape {weights.shape}", remedy)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all() and weights.sum() > 0.0):
        remedy = "give finite weights that are not negative, nor all zero."
        raise BadInput("training.weighting", weights.tolist(), remedy)
    return weights


def capped(weights: FloatArray, cap: float) -> FloatArray:
    """The weights, the largest lowered to one value, so that none is more than ``cap`` of all.

    That bounds what one owner can do to the model. 1 is no limit; below one owner's equal share
    all count alike.

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
