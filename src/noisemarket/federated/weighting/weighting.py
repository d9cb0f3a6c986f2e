"""How much each owner's update counts in the mean: one interface, one weighting a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput

FloatArray = NDArray[np.float64]


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
        A weighting of a user's own package, registered through an entry point of the group
        ``noisemarket.weightings`` and chosen by ``training.weighting``::

            class RootOfSize(Weighting):
                name = "root_of_size"

                def weights(self, figures):
                    return np.sqrt(figures.records)
    """

    name: str

    @abstractmethod
    def weights(self, figures: PublicFigures) -> FloatArray:
        """One weight for each owner, in the owners' order.

        Args:
            figures: what is public about the owners.

        Returns:
            Finite numbers, none negative and not all zero. Only their ratios count.
        """


def owner_weights(weighting: Weighting, figures: PublicFigures) -> FloatArray:
    """The weights of a weighting, checked.

    Raises:
        BadInput: there is not one for each owner, or they are not numbers to weigh by.
    """
    weights = np.asarray(weighting.weights(figures), dtype=np.float64)
    if weights.shape != (len(figures),):
        remedy = f"give a one-dimensional array of {len(figures)} weights, one for each owner."
        raise BadInput(weighting.name, f"an array of shape {weights.shape}", remedy)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all() and weights.sum() > 0.0):
        remedy = "give finite weights that are not negative, nor all zero."
        raise BadInput(weighting.name, weights.tolist(), remedy)
    return weights
