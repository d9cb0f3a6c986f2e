"""What an owner does to its update before it leaves: one interface, one protection a file.

Who gets which contract is a *mechanism*; how an update is made private is a *protection*. All keep
the paper's sigma: the scale of the noise on the uploaded model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from noisemarket.federated.model import FlatModel
from noisemarket.privacy.noise import NoiseSource
from noisemarket.privacy.zcdp import Neighbours

Upload = NDArray[np.float32]


@dataclass(frozen=True)
class Records:
    """One owner's records, ready for the model."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


class Protection(ABC):
    """How an owner trains and what it adds, so that its upload costs a known amount of privacy."""

    name: str

    @property
    def whole_owner(self) -> bool:
        """Whether the unit that is hidden is all the owner's data, not one record."""
        return False

    @abstractmethod
    def upload(
        self,
        model: FlatModel,
        start: torch.Tensor,
        records: Records,
        sigma: float,
        noise: NoiseSource,
        rng: np.random.Generator,
    ) -> Upload:
        """Train from the global model ``start`` and return the protected update to it.

        ``rng`` orders batches; it has nothing to do with the noise.
        """

    @abstractmethod
    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        """What to set sigma against: how far one record (or owner) can move the upload."""

    @abstractmethod
    def passes(self, records: int) -> float:
        """How often a round goes over the owner's data, for comparing costs."""
