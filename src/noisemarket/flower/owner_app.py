"""The owner's ClientApp: says who it is, plays, signs, and trains under its own terms.

Nothing is taken from a message but which job and which round it is; whatever else it says must
agree with the owner's own terms, or the owner declines. Torch is imported when there is something
to sign or to train, not before: other messages are answered in a process that never loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.models import maker_of
from noisemarket.flower import wire
from noisemarket.flower.api import (
    Array,
    ArrayRecord,
    ClientApp,
    ConfigRecord,
    Context,
    Error,
    Message,
    RecordDict,
)
from noisemarket.flower.house import HOUSE, Part, apart, owners_of, together
from noisemarket.flower.simulated_node import config_of_node
from noisemarket.ledger.contract import is_key
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.terms import OwnerTerms

if TYPE_CHECKING:
    from torch import nn

    from noisemarket.federated.models.model import ModelMaker
    from noisemarket.owner.round import Models

DECLINED, FAILED = 1001, 1002
"""Codes of an owner's error replies: it will not, or it could not."""

Handler = Callable[[Message, Context], Message]
Answer = TypeVar("Answer")
Modules = Callable[[Mapping[str, Any]], "nn.Module"]


def owner_app(models: Modules | None = None) -> ClientApp:
    """A ClientApp for an owner. More messages may be registered on it.

    Args:
        models: builds the owner's module of torch from the settings in its terms. By default they
            are those of a scenario's own model.

    Example:
        app = owner_app()
    """
    app, build = ClientApp(), maker_of if models is None else _makers(models)

    def answers(kind: str) -> Callable[[Callable[[OwnerAgent, wire.Said], RecordDict]], None]:
        """Have the app answer this kind of message."""

        def register(answer: Callable[[OwnerAgent, wire.Said], RecordDict]) -> None:
            @public_errors
            def handle(message: Message, context: Context) -> Message:
                owners = owners_of(config_of_node(context.node_config))
                if (asked := apart(message.content)) is None:
                    wire.check_protocol(message)
                    return Message(answer(_agent(owners), message), reply_to=message)
                replies = {
                    name: public_answer(partial(_answer, answer, owners, name, part))
                    for name, part in asked.items()
                }
                return Message(together(replies), reply_to=message)

            decorate = app.train() if kind == wire.TRAIN else app.query(kind.split(".")[1])
            decorate(handle)

        return register

    @app.query(wire.HELLO.split(".")[1])
    @public_errors
    def hello(message: Message, context: Context) -> Message:
        """Who this node is. Only a node whose key was registered under a name is believed."""
        config = config_of_node(context.node_config)
        owners = owners_of(config)
        for one in owners.values():
            OwnerFolder.of(one)
        said = {"owners": list(owners)} if HOUSE in config else {"owner": next(iter(owners))}
        return Message(wire.with_config(**said), reply_to=message)

    @answers(wire.KEY)
    def key(agent: OwnerAgent, _: wire.Said) -> RecordDict:
        """The owner's public key."""
        return wire.with_config(key=agent.public_key)

    @answers(wire.QUOTES)
    def play(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """Many interactions of the game."""
        return wire.offers(agent.answer(*wire.read_quotes(message)))

    @answers(wire.PRICE)
    def stay(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """Whether the owner stays in a clock auction."""
        return wire.with_config(stay=agent.stay(*wire.read_price(message)))

    @answers(wire.CONTRACT)
    def sign(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """The owner's signature, if that is what it agreed to."""
        return wire.with_config(signature=agent.accept(*wire.read_contract(message), build))

    @answers(wire.SIGNED)
    def keep(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """The contract with both signatures: from now on these are the owner's terms."""
        return wire.receipt(agent.keep_accepted(*wire.read_signed(message)))

    @answers(wire.SETTLED)
    def settle(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """What the curator says, and signs, that it pays; the rest is the owner's own account."""
        claim = wire.read_claim(message)
        return wire.receipt(agent.settle(wire.read_receipt(message), claim=claim))

    @answers(wire.REFERENCE)
    def reference(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """The directions of a round, if they are those whose digest the owner had before."""
        task, rows = Task.of(message), wire.read_directions(message)
        from noisemarket.owner.own_standing import keep_shown

        keep_shown(agent.folder, task.job, task.round_number, rows)
        return wire.with_config(kept=True)

    @answers(wire.TRAIN)
    def train(agent: OwnerAgent, message: wire.Said) -> RecordDict:
        """A round under contract."""
        task = Task.of(message)
        terms, start = task.terms(agent.folder), _weights(message)
        from noisemarket.owner.round import OwnRound

        mine = OwnRound(agent.folder, terms, build)
        update = mine.upload(task.round_number, start, task.reference)
        return RecordDict({"arrays": ArrayRecord({wire.WEIGHTS: Array(update)})})

    return app


@dataclass(frozen=True)
class Task:
    """What a message asks for: a round of a job, counted from 1."""

    job: str
    round_number: int
    sigma: float | None
    reference: str = ""

    @classmethod
    def of(cls, message: wire.Said) -> Task:
        """What is in a message, each part checked."""
        config = message.content.get("config")
        if not isinstance(config, ConfigRecord):
            raise Declined("the message has no config")
        job, sigma, number = (config.get(name) for name in ("job", "sigma", "server-round"))
        if not isinstance(job, str):
            raise Declined("the message names no job")
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 2**31:
            raise Declined("the message names no round")
        if sigma is not None and not isinstance(sigma, float):
            raise Declined("sigma is not a number")
        reference = config.get("reference", "")
        if not isinstance(reference, str) or (reference and not is_key(reference)):
            raise Declined("the reference is not a digest")
        return cls(job, number, sigma, reference)

    def terms(self, folder: OwnerFolder) -> OwnerTerms:
        """The owner's own terms for it; declined where the message says otherwise."""
        terms = folder.terms(self.job)
        if self.sigma is not None and self.sigma != terms.sigma:
            raise Declined("sigma is not the contracted one")
        if terms.rounds is not None and self.round_number > terms.rounds:
            raise Declined("the contract has no such round")
        return terms


def arrays_of(message: wire.Said) -> ArrayRecord:
    """The model in a message."""
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or not arrays:
        raise Declined("the message has no model")
    return arrays


def public_errors(handler: Handler) -> Handler:
    """Answer failures without saying more than is public.

    Flower sends the text of an exception to the curator. It could hold anything: figures of the
    account, paths, values of records. It goes to this node's own log instead.
    """

    @wraps(handler)
    def careful(message: Message, context: Context) -> Message:
        reply = public_answer(lambda: handler(message, context))
        return Message(reply, reply_to=message) if isinstance(reply, Error) else reply

    return careful


def public_answer(answer: Callable[[], Answer]) -> Answer | Error:
    """What an owner answers, or a failure in words that are public."""
    try:
        return answer()
    except Declined as problem:
        getLogger(__name__).warning("Declined: %s.", problem)
        return Error(DECLINED, str(problem))
    except Exception:
        getLogger(__name__).exception("The message could not be answered.")
        return Error(FAILED, "failed on the owner's side")


def _answer(
    answer: Callable[[OwnerAgent, wire.Said], RecordDict],
    owners: Mapping[str, Mapping[str, Any]],
    name: str,
    part: Part,
) -> RecordDict:
    wire.check_protocol(part)
    return answer(_agent(owners, name), part)


def _agent(owners: Mapping[str, Mapping[str, Any]], name: str | None = None) -> OwnerAgent:
    """Who acts for an owner of this node; for its only one, where no name is given."""
    if name is None:
        if len(owners) != 1:
            raise Declined("this node serves several owners: ask the house")
        (name,) = owners
    if name not in owners:
        raise Declined("no such owner in this house")
    return OwnerAgent(OwnerFolder.of(owners[name]), owners[name])


def _makers(modules: Modules) -> Models:
    def maker(settings: Mapping[str, Any]) -> ModelMaker:
        from noisemarket.federated.models.torch_model import TorchMaker

        return TorchMaker(partial(modules, settings))

    return maker


def _weights(message: wire.Said) -> NDArray[np.float32]:
    try:
        weights = arrays_of(message)[wire.WEIGHTS].numpy()
    except (KeyError, TypeError, ValueError, EOFError):
        raise Declined("the model cannot be read") from None
    if weights.dtype != np.float32 or not np.isfinite(weights).all():
        raise Declined("the model is not finite single-precision numbers")
    return weights
