"""An owner's training step: load, train under the protection, add noise, charge, release.

``OwnerTrainer`` is the step itself: worker processes, Flower's ClientApp and tests call no other.
``OwnRound`` is for an owner with a folder of its own: it charges and stores a release before giving
it (``released``).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.columns import Description
from noisemarket.federated.engine import Weights, at_model, single_precision
from noisemarket.federated.models.linear import LinearRecords
from noisemarket.federated.models.model import Model, ModelMaker, Records
from noisemarket.federated.protections import Protection, Upload, UploadTask
from noisemarket.files import digest
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.receipts import UploadReceipt
from noisemarket.owner.folder import LOST, Arrays, Declined, OwnerFolder
from noisemarket.owner.terms import Plan, budget_of, protection_of
from noisemarket.privacy.accountant import BudgetSpent, PrivacyBudget
from noisemarket.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise, round_noise

Models = Callable[[Mapping[str, Any]], ModelMaker]
"""Makes the maker of an owner's model from the settings in its terms."""

WEIGHTS = "weights"


class OwnerTrainer:
    """Trains the owners of a job by one model, as many together as it can."""

    def __init__(self, model: Model, protection: Protection, seed: int) -> None:
        self.model, self.protection, self._seed = model, protection, seed

    def uploads(
        self,
        round_number: int,
        weights: Weights | Upload,
        noise: NoiseSource,
        owners: Iterable[tuple[int, Records, float]],
    ) -> Iterator[Upload]:
        """Protected updates in a round, counted from 1, of owners with their records and noise."""
        start, here = single_precision(weights), at_model(noise, weights)
        with self.model.one_thread():
            waiting = iter(owners)
            while lot := tuple(islice(waiting, self.model.lot)):
                tasks = []
                for owner, records, sigma in lot:
                    seed = np.random.SeedSequence(self._seed, spawn_key=(round_number - 1, owner))
                    source = round_noise(here, owner, round_number)
                    tasks.append(UploadTask(self.model, start, records, sigma, source, seed))
                self.model.reseed(tasks[0].seed)
                yield from self.protection.uploads(tasks)


def released(
    folder: OwnerFolder,
    contract: Contract,
    plan: Plan,
    round_number: int,
    start: Arrays,
    make: Callable[[NoiseSource], Arrays],
    budget: PrivacyBudget,
    receipt: UploadReceipt | None = None,
    *,
    own: bool = False,
) -> Arrays:
    """What goes out in a round from this global model: charged, made once, kept, and then given.

    It is charged before any record is looked at, for an error tells of the records, too. The same
    round from the same model once more gets the very same bits, whatever app asks, and costs
    nothing more. All else is made with new noise and charged anew: none ever serves for two
    updates. With ``own`` training, which fails on the same records or never, a release that was cut
    off before it was kept is made again for the charge that it had: it never went out. It needs the
    curator's ``receipt`` of the upload before, where there is a contract with both signatures.
    """
    name, job = _name_of(start, b"%d" % round_number), contract.job
    with folder.locked(job):
        if (known := folder.release(job, name)) is not None:
            return known
        denied = folder.keep_upload_receipt(contract, receipt, round_number)
        if denied > max(1, int(LOST * contract.rounds)):
            raise Declined(f"the curator says that {denied} uploads did not come")
        try:
            release_id = name[:32] if own else secrets.token_hex(16)
            folder.wallet().spend(job, round_number, release_id, budget.rho_per_round)
        except BudgetSpent:
            raise Declined("the privacy budget is spent") from None
        release = make(SimulatedNoise(plan["seed"]) if contract.simulated else SecureNoise())
        folder.keep_release(job, name, round_number, release)
        return release


def _name_of(arrays: Arrays, *more: bytes) -> str:
    """What tells these arrays from any others."""
    parts = list(more)
    for name, array in arrays.items():
        parts += [f"{name}\0{array.dtype.str}\0{array.shape}".encode(), array.tobytes()]
    return digest(*parts).hex()


def _described(contract: Contract, plan: Plan) -> Description | None:
    """The contracted description of a record, from the text that came with the contract."""
    if contract.description is None:
        return None
    try:
        description = Description.parse(str(plan.get("description", "")))
    except BadInput:
        raise Declined("the description of a record cannot be read") from None
    if description.sha256 != contract.description:
        raise Declined("the description of a record is not the contracted one")
    if plan["model"].get("dimension", description.dimension) != description.dimension:
        raise Declined("the model does not fit the description of a record")
    return description


class OwnRound:
    """The rounds of an owner that has its terms and its records in a folder of its own."""

    def __init__(self, folder: OwnerFolder, contract: Contract, plan: Plan, models: Models) -> None:
        self._folder, self._contract, self._plan = folder, contract, plan
        model = models(plan["model"])(plan["seed"])
        self._trainer = OwnerTrainer(model, protection_of(contract), plan["seed"])
        inputs, labels = folder.records(_described(contract, plan))
        self._records = model.records(inputs, labels)
        if not len(self._records):
            raise Declined("the owner has no records to train on")
        if not 0 <= labels.min() <= labels.max() < plan["model"].get("classes", math.inf):
            raise Declined("the owner's records have classes that the model does not have")
        if isinstance(self._records, LinearRecords) and not self._records.lengths.max() < 1.0001:
            raise Declined("the owner's features are longer than 1: scale each record to length 1")

    def __len__(self) -> int:
        return len(self._records)

    @cached_property
    def budget(self) -> PrivacyBudget:
        """What a round costs: of the owner's model and its records."""
        return budget_of(self._contract, len(self._trainer.model), len(self))

    @cached_property
    def own_budget(self) -> PrivacyBudget:
        """The same in the relation of neighbours that the owner counts in."""
        relation = self._folder.neighbours()
        return budget_of(self._contract, len(self._trainer.model), len(self), relation)

    def upload(
        self, round_number: int, weights: Upload, receipt: UploadReceipt | None = None
    ) -> Upload:
        """Train from this global model; what is given was charged and kept."""
        if weights.shape != (len(self._trainer.model),):
            raise Declined("the model is not the contracted one")
        contract, plan = self._contract, self._plan

        def train(noise: NoiseSource) -> Arrays:
            me = plan["index"], self._records, contract.sigma
            [update] = self._trainer.uploads(round_number, weights, noise, [me])
            return {WEIGHTS: update}

        return released(
            self._folder, contract, plan, round_number, {WEIGHTS: weights}, train,
            self.own_budget,
            receipt,
            own=True,
        )[WEIGHTS]  # fmt: skip
