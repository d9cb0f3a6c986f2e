"""The owner's ClientApp: says who it is, negotiates, signs, and trains under its own terms.

Torch is imported when there is something to sign or to train, not before: other messages are
answered in a process that never loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.flower import wire
from noisemarket.flower.api import (
    Array,
    ArrayRecord,
    ClientApp,
    ConfigRecord,
    Context,
    Message,
    RecordDict,
)
from noisemarket.flower.desk import Desk, work_of
from noisemarket.flower.owner import (
    OwnerFolder,
    Refused,
    Terms,
    agreed,
    arrays_of,
    discreet,
    task_of,
)

if TYPE_CHECKING:
    from torch import nn

    from noisemarket.federated.model import FlatModel
    from noisemarket.federated.protections import Protection
    from noisemarket.ledger.contract import Contract
    from noisemarket.privacy.noise import NoiseSource

Models = Callable[[Mapping[str, Any]], "nn.Module"]
WEIGHTS = "weights"


def owner_app(models: Models | None = None) -> ClientApp:
    """A ClientApp for an owner. ``models`` builds the model from the terms' ``model``; without it,
    they are the settings of the CNN. More messages may be registered on the app."""
    app = ClientApp()

    @app.query("hello")
    @discreet
    def hello(message: Message, context: Context) -> Message:
        """Who this node is. Only a node whose key was registered under a name is believed."""
        owner = OwnerFolder.of(context)
        return Message(
            RecordDict({"config": ConfigRecord({"owner": owner.name})}), reply_to=message
        )

    @app.train()
    @discreet
    def train(message: Message, context: Context) -> Message:
        """A round under contract."""
        return train_under_contract(message, context, models or cnn)

    _open_desk(app, models or cnn)
    return app


def _open_desk(app: ClientApp, models: Models) -> None:
    """Have an app answer the messages of a market: play, sign, keep, settle."""

    def desk(context: Context) -> Desk:
        return Desk(OwnerFolder.of(context), context.node_config)

    @app.query("key")
    @discreet
    def key(message: Message, context: Context) -> Message:
        """The owner's public key."""
        return Message(wire.with_config(key=desk(context).public_key), reply_to=message)

    @app.query("letter")
    @discreet
    def letter(message: Message, context: Context) -> Message:
        """Many interactions of the game."""
        reply = desk(context).answer(*wire.read_letter(message))
        return Message(wire.reply(reply), reply_to=message)

    @app.query("offer")
    @discreet
    def offer(message: Message, context: Context) -> Message:
        """The owner's signature, if that is what it agreed to."""
        contract, plan = wire.read_offer(message)
        owner = OwnerFolder.of(context)
        rho = _cost(owner, terms_of(contract, plan), models)
        signature = desk(context).sign(contract, plan, rho)
        return Message(wire.with_config(signature=signature), reply_to=message)

    @app.query("keep")
    @discreet
    def keep(message: Message, context: Context) -> Message:
        """The contract with both signatures: from now on these are the owner's terms."""
        signed = wire.read_signed(message)
        plan = desk(context).keep(signed)
        OwnerFolder.of(context).agree(terms_of(signed.contract, plan))
        return Message(wire.with_config(kept=True), reply_to=message)

    @app.query("settled")
    @discreet
    def settled(message: Message, context: Context) -> Message:
        """What the curator says, and signs, that it pays; the rest is the owner's own account."""
        desk(context).settle(*wire.read_settled(message))
        return Message(wire.with_config(kept=True), reply_to=message)


def terms_of(contract: Contract, plan: Mapping[str, Any]) -> Terms:
    """What a contract has the owner do. From the plan are the model, the order of batches and the
    owner's place: nothing that its privacy hangs on."""
    work = work_of(contract)
    return Terms(
        job=contract.job,
        owner=contract.owner,
        index=plan["index"],
        sigma=contract.sigma,
        protection=contract.protection,
        settings=work["settings"],
        model=plan["model"],
        neighbours=contract.neighbours,
        delta=contract.delta,
        rho_cap=contract.rho_cap,
        noise="simulated" if contract.simulated else "secure",
        seed=plan["seed"],
        rounds=contract.rounds,
    )


def _cost(owner: OwnerFolder, terms: Terms, models: Models) -> float:
    """What a round would cost by the owner's own account: of its model and its records."""
    from noisemarket.privacy.zcdp import gaussian_rho

    try:
        training = _Training(owner, terms, models)
        return gaussian_rho(training.reach(), terms.sigma)
    except (KeyError, TypeError, ValueError, BadInput):
        raise Refused("the work cannot be done as offered") from None


def train_under_contract(message: Message, context: Context, models: Models) -> Message:
    """Train on the owner's records from the model in the message, protect the update by the owner's
    terms, charge it, and only then let it go."""
    task, owner = task_of(message), OwnerFolder.of(context)
    terms = agreed(owner, task)
    start = _weights(message)
    update = _Training(owner, terms, models).upload(start, task.round_number)
    arrays = ArrayRecord({WEIGHTS: Array(update)})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def cnn(settings: Mapping[str, Any]) -> nn.Module:
    """The paper's network, from the terms' settings."""
    from noisemarket.federated.model import CNN

    changed = {**settings}
    if "channels" in changed:
        first, second = changed["channels"]
        changed["channels"] = (int(first), int(second))
    return CNN(**changed)


class _Training:
    """One round of one owner: the very steps of the embedded engine's worker."""

    def __init__(self, owner: OwnerFolder, terms: Terms, models: Models) -> None:
        import torch

        from noisemarket.federated.model import seeded, tensor
        from noisemarket.federated.protections import PROTECTIONS, Records

        torch.set_num_threads(1)
        self.owner, self.terms = owner, terms
        self.model: FlatModel = seeded(partial(models, terms.model), terms.seed)
        self.protection: Protection = PROTECTIONS.find(terms.protection).from_settings(
            terms.settings
        )
        images, labels = owner.records()
        self.records = Records(tensor(images), torch.from_numpy(labels))

    def upload(self, start: NDArray[np.float32], round_number: int) -> NDArray[np.float32]:
        import torch

        terms, protection = self.terms, self.protection
        if start.shape != (len(self.model),):
            raise Refused("the model is not the contracted one")

        def make(noise: NoiseSource) -> dict[str, NDArray[np.float32]]:
            seed = np.random.SeedSequence(terms.seed, spawn_key=(round_number, terms.index))
            torch.manual_seed(int(seed.generate_state(1)[0]))
            weights, rng = torch.from_numpy(start.copy()), np.random.default_rng(seed)
            made = protection.upload(self.model, weights, self.records, terms.sigma, noise, rng)
            return {WEIGHTS: made}

        release = self.owner.once(terms, round_number, {WEIGHTS: start}, make)
        budget = terms.budget(protection, len(self.model), len(self.records))
        self.owner.charge(terms, budget, round_number, release)
        return release[WEIGHTS]

    def reach(self) -> float:
        """What the noise has to hide."""
        from noisemarket.privacy.zcdp import Neighbours

        neighbours = Neighbours.named(self.terms.neighbours)
        return self.protection.sensitivity(len(self.model), len(self.records), neighbours)


def _weights(message: Message) -> NDArray[np.float32]:
    arrays = arrays_of(message)
    try:
        weights = arrays[WEIGHTS].numpy()
    except (KeyError, TypeError, ValueError, EOFError):
        raise Refused("the model cannot be read") from None
    if weights.dtype != np.float32 or not np.isfinite(weights).all():
        raise Refused("the model is not finite single-precision numbers")
    return weights
