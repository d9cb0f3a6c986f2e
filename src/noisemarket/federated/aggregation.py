"""How owners' updates become the next global model: weights, the mean, and the server's steps.

All of it follows from public figures and works on what was released, so none of it costs privacy.

**Steps for linear models.** With features of length 1, noise of standard deviation s on every
weight moves each score by N(0, s^2). The less noise in the mean update, the farther the model may
travel along it, which is rate / (1 - momentum): in inverse proportion, and to the root of the
rounds. Up to ``RATE`` that is a rate without momentum; then momentum rises to ``MOST_MOMENTUM``,
then the rate.

**Steps for networks.** The rate keeps the noise that a round adds about what sigma = 0.3 of all
owners would add, from 1 to 3; there is no momentum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
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

COUNT_CAP = 3.0
"""Records count up to so many times the median of the owners, in weights and in scores: an owner
states their number itself."""
LARGEST_SHARE = 0.1
"""The largest share of one owner in the mean by default, or twice an equal share if that is more:
no owner can take the model far by itself."""


VERSION = 4
"""Of the rules for the server's steps: goes up with every change of what they give."""

TRAVEL = 0.36
"""The travel times the mean's noise over its length: 6 for 100 owners at sigma 0.6."""
ROUNDS = 30
"""The rounds at which ``TRAVEL`` was measured."""
LONGEST = 500.0
"""The longest travel, where there is next to no noise."""
RATE = 36.0
"""The rate beyond which momentum goes the rest of the way: none at sigma 0.1 of 100 owners."""
MOST_MOMENTUM = 0.8
LINEAR_AVERAGING = 0.8
NETWORK_AVERAGING = 0.6


@dataclass(frozen=True, eq=False)
class PublicFigures:
    """What is public about the owners before a round; ``beta`` is the mean non-IID degree."""

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
        """One weight for each owner: finite, none negative, not all zero. Only ratios count."""


class Noise(Weighting):
    """Signal over variance: ``sqrt(records) / (sigma^2 + SPREAD / records + between)``.

    ``between``, how much owners differ, is ``UNEVENNESS / (10 beta + 1)^2``: without it a model of
    uneven data follows the labels of a few sellers. For owners of one size these are the
    minimum-variance weights.
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


def counted(records: NDArray[np.int64]) -> NDArray[np.int64]:
    """What owners' stated numbers of records count as.

    Example:
        >>> counted(np.array([100, 200, 90_000])).tolist()
        [100, 200, 600]
    """
    return np.minimum(records, int(COUNT_CAP * float(np.median(records))))


def default_weight_cap(owners: int) -> float:
    """The largest share of one owner, where the scenario says auto."""
    return min(1.0, max(LARGEST_SHARE, 2.0 / owners))


def capped(weights: FloatArray, cap: float) -> FloatArray:
    """The weights, the largest lowered to one value, so that none is more than ``cap`` of all.

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

    Example:
        >>> effective_noise([0.3, 0.3, 0.3, 0.3], [1.0, 1.0, 1.0, 1.0])
        0.3
    """
    noise, weight = np.asarray(sigma, dtype=float), np.asarray(weights, dtype=float)
    spread = math.sqrt(float((weight**2 * noise**2).sum()))
    return math.sqrt(len(weight)) * spread / float(weight.sum())


def effective_share(weights: ArrayLike) -> float:
    """The part of the owners that the mean rests on: 1 if all count alike, 1/N if only one does.

    Example:
        >>> effective_share([1.0, 1.0, 0.0, 0.0])
        0.5
    """
    weight = np.asarray(weights, dtype=float)
    return float(weight.sum()) ** 2 / (len(weight) * float((weight**2).sum()))


def aggregate(
    weights: FloatArray,
    uploads: Mapping[int, NDArray[np.float32]],
    shares: FloatArray,
    rate: float = 1.0,
    weight_cap: float = 1.0,
) -> FloatArray:
    """The global model moved by ``rate`` times the weighted mean, summed in the owners' order."""
    present = sorted(uploads)
    counts = capped(shares[present], weight_cap) if present else np.zeros(0)
    whole = float(counts.sum())
    if whole <= 0.0:
        return weights
    moved = weights.copy()
    for owner, count in zip(present, counts.tolist(), strict=True):
        moved += (rate * count / whole) * uploads[owner].astype(np.float64)
    return moved


@dataclass(frozen=True)
class ServerSteps:
    """velocity = momentum * velocity + mean update; model += rate * velocity."""

    rate: float
    momentum: float
    averaging: float


def linear_steps(noise: float, length: float, rounds: int = ROUNDS) -> ServerSteps:
    """The steps for a linear model, by the deviation of the mean update's noise on every weight.

    ``length`` is how long an update may be without its noise; if infinite, the mean counts once.

    Example:
        >>> linear_steps(noise=0.06, length=1.0)
        ServerSteps(rate=6.0, momentum=0.0, averaging=0.8)
    """
    if math.isinf(length):
        return ServerSteps(1.0, 0.0, LINEAR_AVERAGING)
    piled = noise * math.sqrt(rounds / ROUNDS)
    travel = min(LONGEST, TRAVEL * length / piled) if piled > 0.0 else LONGEST
    momentum = min(MOST_MOMENTUM, max(0.0, 1.0 - RATE / travel))
    return ServerSteps(travel * (1.0 - momentum) / length, momentum, LINEAR_AVERAGING)


def network_steps(sigma: FloatArray, weights: FloatArray) -> ServerSteps:
    """The steps for a network, by each owner's noise and weight."""
    usual = math.sqrt(float((weights * sigma**2).sum() / weights.sum()))
    rate = min(3.0, max(1.0, 0.3 / usual)) if usual > 0.0 else 3.0
    return ServerSteps(rate, 0.0, NETWORK_AVERAGING)
