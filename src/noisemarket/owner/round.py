"""An owner's training step: load, train under the protection, add noise, charge, release.

``OwnerTrainer`` is the step itself: worker processes, Flower's ClientApp and tests call no other.
``OwnRound`` is for an owner with a folder of its own: what it gives was kept and charged before
(``released``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from noisemarket.federated.engine import Weights, at_model, single_precision
from noisemarket.federated.models.linear import LinearRecords
from noisemarket.federated.models.model import Model, ModelMaker, Records
from noisemarket.federated.protections import Protection, Upload, UploadTask
from noisemarket.files import digest
from noisemarket.ledger.contract import Contract
from noisemarket.owner.folder import Arrays, Declined, OwnerFolder
from noisemarket.owner.terms import Plan, budget_of, protection_of
from noisemarket.privacy.accountant import BudgetSpent, JournalledAccountant
from noisemarket.privacy.noise import (
    Diverged,
    NoiseSource,
    SecureNoise,
    SimulatedNoise,
    round_noise,
)
from noisemarket.privacy.statement import PrivacyBudget

Models = Callable[[Mapping[str, Any]], ModelMaker]
"""Makes the maker of an owner's model from the settings in its terms."""

WEIGHTS = "weights"


class OwnerTrainer:
    """Trains the owners of a job by one model, one after another."""

    def __init__(self, model: Model, protection: Protection, seed: int) -> None:
        self.model, self.protection, self._seed = model, protection, seed

    def uploads(
        self,
        round_number: int,
        weights: Weights | Upload,
        noise: NoiseSource,
        owners: Iterable[tuple[int, Records, float]],
    ) -> Iterator[Upload]:
        """Owners' protected updates to the global model in a round, counted from 1.

        An owner comes with its records and its noise. An update that diverged is all NaN: the
        screen of uploads refuses it as not finite.
        """
        start, here = single_precision(weights), at_model(noise, weights)
        with self.model.one_thread():
            for owner, records, sigma in owners:
                seed = np.random.SeedSequence(self._seed, spawn_key=(round_number - 1, owner))
                self.model.reseed(seed)
                source = round_noise(here, owner, round_number)
                task = UploadTask(self.model, start, records, sigma, source, seed)
                try:
                    yield self.protection.upload(task)
                except Diverged:
                    yield np.full(len(self.model), np.nan, np.float32)


def released(
    folder: OwnerFolder,
    contract: Contract,
    plan: Plan,
    round_number: int,
    start: Arrays,
    make: Callable[[NoiseSource], Arrays],
    budget: Callable[[Arrays], PrivacyBudget],
) -> Arrays:
    """What goes out in a round from this global model: made once, kept, charged, and then given.

    The same round from the same model once more gets the very same bits, whatever app asks. All
    else is made with new noise: none ever serves for two updates. On the account a release is named
    by its content: the same bits cost nothing more, and no others pass for them.
    """
    name = _name_of(start, b"%d" % round_number)
    job = contract.job
    release = folder.release(job, name)
    if release is None:
        release = make(SimulatedNoise(plan["seed"]) if contract.simulated else SecureNoise())
        folder.keep_release(job, name, release)
    journal = folder.journal(job)
    journal.touch(mode=0o600)
    try:
        with JournalledAccountant(journal, [budget(release)], job) as accountant:
            accountant.charge(folder.name, round_number, release_id=_name_of(release))
    except BudgetSpent:
        raise Declined("the privacy budget is spent") from None
    return release


def _name_of(arrays: Arrays, *more: bytes) -> str:
    """What tells these arrays from any others."""
    parts = list(more)
    for name, array in arrays.items():
        parts += [f"{name}\0{array.dtype.str}\0{array.shape}".encode(), array.tobytes()]
    return digest(*parts).hex()


class OwnRound:
    """The rounds of an owner that has its terms and its records in a folder of its own."""

    def __init__(self, folder: OwnerFolder, contract: Contract, plan: Plan, models: Models) -> None:
        self._folder, self._contract, self._plan = folder, contract, plan
        model = models(plan["model"])(plan["seed"])
        self._trainer = OwnerTrainer(model, protection_of(contract), plan["seed"])
        self._records = model.records(*folder.records())
        if not len(self._records):
            raise Declined("the owner has no records to train on")
        if isinstance(self._records, LinearRecords) and not self._records.lengths.max() < 1.0001:
            raise Declined("the owner's features are longer than 1: scale each record to length 1")

    def __len__(self) -> int:
        """How many records the owner has."""
        return len(self._records)

    @cached_property
    def budget(self) -> PrivacyBudget:
        """What a round costs by the owner's own account: of its model and its records."""
        return budget_of(self._contract, len(self._trainer.model), len(self))

    def upload(self, round_number: int, weights: Upload) -> Upload:
        """Train from this global model; what is given was kept and charged."""
        if weights.shape != (len(self._trainer.model),):
            raise Declined("the model is not the contracted one")
        contract, plan = self._contract, self._plan

        def train(noise: NoiseSource) -> Arrays:
            me = plan["index"], self._records, contract.sigma
            [update] = self._trainer.uploads(round_number, weights, noise, [me])
            return {WEIGHTS: update}

        return released(
            self._folder, contract, plan, round_number, {WEIGHTS: weights}, train,
            lambda _: self.budget,
        )[WEIGHTS]  # fmt: skip
