"""An owner's training step: load, train under the protection, add noise, charge, release.

``OwnerTrainer`` is the step itself: worker processes, Flower's ClientApp and tests call no other.
``OwnRound`` is for an owner with a folder of its own: what it gives was kept and charged before
(``release``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from noisemarket.federated.engine import Weights, at_model
from noisemarket.federated.model import FlatModel, seeded, tensor
from noisemarket.federated.protections import Protection, Records, Upload
from noisemarket.owner.folder import Arrays, Declined, OwnerFolder
from noisemarket.owner.release import released
from noisemarket.owner.terms import OwnerTerms
from noisemarket.privacy.noise import Diverged, NoiseSource, round_noise
from noisemarket.privacy.statement import PrivacyBudget

if TYPE_CHECKING:
    from torch import nn

Models = Callable[[Mapping[str, Any]], "nn.Module"]
"""Builds a model from the settings in an owner's terms."""

WEIGHTS = "weights"


class OwnerTrainer:
    """Trains the owners of a job by one model, one owner at a time.

    Args:
        model: the model to train. Its weights are overwritten.
        protection: how an update is made private.
        seed: the job's, which orders batches.
    """

    def __init__(self, model: FlatModel, protection: Protection, seed: int) -> None:
        self.model, self.protection, self._seed = model, protection, seed

    def upload(
        self,
        round_number: int,
        weights: Weights | Upload,
        owner: int,
        records: Records,
        sigma: float,
        noise: NoiseSource,
    ) -> Upload:
        """An owner's protected update to the global model in a round, counted from 1.

        An update that diverged is all NaN: whoever screens uploads refuses it as not finite.
        """
        import torch

        with np.errstate(over="ignore"):  # a global model that has diverged
            start = torch.from_numpy(weights.astype(np.float32))
        key = round_number - 1, owner
        seed = np.random.SeedSequence(self._seed, spawn_key=key)
        torch.manual_seed(int(seed.generate_state(1)[0]))  # for models that draw, as by dropout
        source = round_noise(at_model(noise, weights), owner, round_number)
        try:
            return self.protection.upload(
                self.model, start, records, sigma, source, np.random.default_rng(seed)
            )
        except Diverged:
            return np.full(len(self.model), np.nan, np.float32)


class OwnRound:
    """The rounds of an owner that has its terms and its records in a folder of its own."""

    def __init__(self, folder: OwnerFolder, terms: OwnerTerms, models: Models) -> None:
        import torch

        torch.set_num_threads(1)
        self._folder, self._terms = folder, terms
        protection = terms.build_protection()
        model = seeded(partial(models, terms.model), terms.seed)
        self._trainer = OwnerTrainer(model, protection, terms.seed)
        images, labels = folder.records()
        self._records = Records(tensor(images), torch.from_numpy(labels))

    def __len__(self) -> int:
        """How many records the owner has."""
        return len(self._records)

    @cached_property
    def budget(self) -> PrivacyBudget:
        """What a round costs by the owner's own account: of its model and its records."""
        return self._terms.budget(len(self._trainer.model), len(self))

    def upload(self, round_number: int, weights: Upload) -> Upload:
        """Train from this global model; what is given was kept and charged."""
        if weights.shape != (len(self._trainer.model),):
            raise Declined("the model is not the contracted one")
        terms = self._terms

        def train(noise: NoiseSource) -> Arrays:
            update = self._trainer.upload(
                round_number, weights, terms.index, self._records, terms.sigma, noise
            )
            return {WEIGHTS: update}

        start = {WEIGHTS: weights}
        return released(
            self._folder, terms, round_number, start, train, lambda release: self.budget
        )[WEIGHTS]
