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
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from noisemarket.federated.models import maker_of
from noisemarket.flower import wire
from noisemarket.flower.house import HOUSE, apart, owners_of, together
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
Answer = Callable[[OwnerAgent, wire.Said], RecordDict]
Given = TypeVar("Given")
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
    answers: dict[str, Answer] = {
        wire.KEY: lambda agent, _: wire.with_config(key=agent.public_key),
        wire.QUOTES: lambda agent, said: wire.proposals(agent.answer(*wire.read_quotes(said))),
        wire.PRICE: lambda agent, said: wire.with_config(stay=agent.stay(*wire.read_price(said))),
        wire.CONTRACT: lambda agent, said: wire.with_config(
            signature=agent.accept(*wire.read_contract(said), build)
        ),
        wire.SIGNED: lambda agent, said: wire.receipt(agent.keep_accepted(*wire.read_signed(said))),
        wire.SETTLED: lambda agent, said: wire.receipt(agent.settle(wire.read_receipt(said))),
    }
    app.query(_action(wire.HELLO))(_hello)
    app.train()(_handler(partial(_train, build)))
    for kind, answer in answers.items():
        app.query(_action(kind))(_handler(answer))
    return app


def _action(kind: str) -> str:
    return kind.removeprefix("query.")


def _handler(answer: Answer) -> Handler:
    """Has an owner answer, or each owner of a house its part of the message."""

    @public_errors
    def handle(message: Message, context: Context) -> Message:
        owners = owners_of(context.node_config)

        def reply_of(name: str, said: wire.Said) -> RecordDict:
            wire.check_protocol(said)
            if name not in owners:
                raise Declined("no such owner in this house")
            return answer(OwnerAgent(OwnerFolder.of(owners[name]), owners[name]), said)

        if (asked := apart(message.content)) is None:
            if len(owners) != 1:
                raise Declined("this node serves several owners: ask the house")
            return Message(reply_of(next(iter(owners)), message), reply_to=message)
        replies = {
            name: public_answer(partial(reply_of, name, part)) for name, part in asked.items()
        }
        return Message(together(replies), reply_to=message)

    return handle


def _train(build: Models, agent: OwnerAgent, message: wire.Said) -> RecordDict:
    task = Task.of(message)
    terms, start = task.terms(agent.folder), wire.array_of(message, wire.WEIGHTS)
    if start is None:
        raise Declined("the model cannot be read")
    if start.dtype != np.float32 or not np.isfinite(start).all():
        raise Declined("the model is not finite single-precision numbers")
    from noisemarket.owner.round import OwnRound

    mine = OwnRound(agent.folder, terms, build)
    update = mine.upload(task.round_number, start)
    return RecordDict({"arrays": ArrayRecord({wire.WEIGHTS: Array(update)})})


@dataclass(frozen=True)
class Task:
    """What a message asks for: a round of a job, counted from 1."""

    job: str
    round_number: int
    sigma: float | None

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
        return cls(job, number, sigma)

    def terms(self, folder: OwnerFolder) -> OwnerTerms:
        """The owner's own terms for it; declined where the message says otherwise."""
        terms = folder.terms(self.job)
        if self.sigma is not None and self.sigma != terms.sigma:
            raise Declined("sigma is not the contracted one")
        if terms.rounds is not None and self.round_number > terms.rounds:
            raise Declined("the contract has no such round")
        return terms


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


def public_answer(answer: Callable[[], Given]) -> Given | Error:
    """What an owner answers, or a failure in words that are public."""
    try:
        return answer()
    except Declined as problem:
        getLogger(__name__).warning("Declined: %s.", problem)
        return Error(DECLINED, str(problem))
    except Exception:
        getLogger(__name__).exception("The message could not be answered.")
        return Error(FAILED, "failed on the owner's side")


@public_errors
def _hello(message: Message, context: Context) -> Message:
    """Who this node is. Only a node whose key was registered under a name is believed."""
    config = context.node_config
    owners = owners_of(config)
    for one in owners.values():
        OwnerFolder.of(one)
    said = {"owners": list(owners)} if HOUSE in config else {"owner": next(iter(owners))}
    return Message(wire.with_config(**said), reply_to=message)


def _makers(modules: Modules) -> Models:
    def maker(settings: Mapping[str, Any]) -> ModelMaker:
        from noisemarket.federated.models.torch_model import TorchMaker

        return TorchMaker(partial(modules, settings))

    return maker
