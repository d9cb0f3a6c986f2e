"""What trains a round: one interface for one machine and for many."""

from __future__ import annotations

import hashlib
import pickle
import platform
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from noisemarket import __version__
from noisemarket.federated.data import Dataset
from noisemarket.federated.models.model import Flat, Model, ModelMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Protection, Upload
from noisemarket.files import Closing, digest
from noisemarket.formats import Infinite
from noisemarket.privacy.noise import KeyedNoise, NoiseSource, SecureNoise, SimulatedNoise

Weights = NDArray[np.float64]
Noise = Literal["secure", "simulated"]

TEST_BATCH = 1000
"""Test images that a model sees at a time: the same in every engine, for the same bits."""


@dataclass(frozen=True)
class Job:
    """All that an engine needs to train: data and its owners, model, protection, contracts.

    ``noise = "simulated"`` draws noise from ``seed``, for tests and simulation: not private. With a
    secret ``noise_key``, secure noise comes from a cipher under it, and a release that was cut off
    can be made again bit by bit.
    """

    data: Dataset
    partition: Partition
    model: ModelMaker
    protection: Protection
    sigma: NDArray[np.float64]
    seed: int
    noise: Noise = "secure"
    noise_key: bytes | None = field(default=None, repr=False)

    def first_weights(self) -> Weights:
        return self.model(self.seed).first_weights().astype(np.float64)

    def noise_source(self) -> NoiseSource:
        if self.noise == "simulated":
            return SimulatedNoise(self.seed)
        if self.noise_key is None:
            return SecureNoise()
        return KeyedNoise(self.noise_key).bound(self._context)

    @property
    def made_by(self) -> str:
        """What computes the updates, in words: versions, and the kind of processor."""
        parts = f"noisemarket {__version__}", f"NumPy {np.__version__}", f"SciPy {version('scipy')}"
        blas = {str(one.get("architecture")) for one in threadpool_info()} - {"None"}
        machine = " ".join((platform.machine(), *sorted(blas)))
        return ", ".join((*parts, *self.model.made_by(), machine))

    @cached_property
    def _context(self) -> bytes:
        """All that an update follows from, but for the global model, the owner and the round."""
        made_by = __version__, np.__version__, version("scipy")
        return digest(
            repr((made_by, self.seed, self.data.sha256)).encode(),
            self.model.identity(),
            pickle.dumps(self.protection),
            self.sigma.tobytes(),
            *(np.ascontiguousarray(own, np.int64).tobytes() for own in self.partition.indices),
        )

    def __len__(self) -> int:
        return len(self.partition)


def at_model(noise: NoiseSource, weights: NDArray[Any]) -> NoiseSource:
    """The noise for releases that start from this global model, and from no other."""
    return noise.bound(hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest())


@dataclass(frozen=True)
class Score:
    """Accuracy on the test images in per cent, and mean loss: infinite or NaN after divergence."""

    accuracy: float
    loss: Infinite


def single_precision(weights: NDArray[Any]) -> Flat:
    """A global model as models train it; one that has diverged may become infinite."""
    with np.errstate(over="ignore"):
        return weights.astype(np.float32)


def score_of(model: Model, weights: Weights, data: Dataset) -> Score:
    """Test a model on the test images, in this process."""
    single, labels = single_precision(weights), data.test_labels
    right, loss = 0, 0.0
    with model.one_thread():
        for first in range(0, len(labels), TEST_BATCH):
            part = slice(first, first + TEST_BATCH)
            found, lost = model.score(single, data.test_inputs[part], labels[part].copy())
            right, loss = right + found, loss + lost
    return Score(100.0 * right / len(labels), loss / len(labels))


class Engine(Closing):
    """Trains owners, from a global model to their uploads, and tests models.

    The same job gives the same bits from every engine and any number of workers, secure noise
    apart.
    """

    @abstractmethod
    def first_weights(self) -> Weights:
        """The model that training starts from."""

    @abstractmethod
    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        """The uploads of some owners in a round; None for an owner that did not answer."""

    @abstractmethod
    def score(self, weights: Weights) -> Score:
        """Test a model on the job's test records."""

    @abstractmethod
    def close(self) -> None:
        """Stop all workers."""
