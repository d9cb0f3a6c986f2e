"""The owner's ClientApp: turns Flower's messages into questions, and has the owner answer.

Nothing is taken from a message but what ``owner_messages`` reads; whatever it says must agree with
the owner's own terms, or the owner declines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from noisemarket.federated.models import maker_of
from noisemarket.flower.records import (
    HELLO,
    HOUSE,
    apart,
    config_of,
    content,
    owners_of,
    plain_of,
    together,
)
from noisemarket.owner.agent import OwnerAgent, public_reply
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.owner_messages import (
    QUESTIONS,
    Question,
    Refused,
    Reply,
    Train,
    check_protocol,
)

if TYPE_CHECKING:
    from torch import nn

    from noisemarket.federated.models.model import ModelMaker
    from noisemarket.owner.round import Models

DECLINED, FAILED = 1001, 1002
"""Codes of an owner's error replies: it will not, or it could not."""

Handler = Callable[[Message, Context], Message]
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
    app.query(_action(HELLO))(_hello)
    for kind, question in QUESTIONS.items():
        register = app.train() if question is Train else app.query(_action(kind))
        register(_handler(question, build))
    return app


def _action(kind: str) -> str:
    return kind.removeprefix("query.")


def _handler(question: type[Question], build: Models) -> Handler:
    """Has an owner answer, or each owner of a house its part of the message."""

    @public_errors
    def handle(message: Message, context: Context) -> Message:
        owners = owners_of(context.node_config)

        def reply_of(name: str, said: RecordDict) -> Reply:
            check_protocol(config_of(said))
            if name not in owners:
                raise Declined("no such owner in this house")
            agent = OwnerAgent(OwnerFolder.of(owners[name]), owners[name], build)
            return agent.handle(question.read(*plain_of(said)))

        if (asked := apart(message.content)) is None:
            if len(owners) != 1:
                raise Declined("this node serves several owners: ask the house")
            said = reply_of(next(iter(owners)), message.content)
            return Message(content(said.plain()), reply_to=message)
        contents: dict[str, RecordDict | Error] = {}
        for name, part in asked.items():
            reply = public_reply(partial(reply_of, name, part))
            refused = isinstance(reply, Refused)
            contents[name] = _error(reply) if refused else content(reply.plain())
        return Message(together(contents), reply_to=message)

    return handle


def public_errors(handler: Handler) -> Handler:
    """Answer failures without the text of exceptions, which Flower would send to the curator."""

    @wraps(handler)
    def careful(message: Message, context: Context) -> Message:
        sent: list[Message] = []

        def answer() -> Reply:
            sent.append(handler(message, context))
            return Refused("")

        refused = public_reply(answer)
        return sent[0] if sent else Message(_error(refused), reply_to=message)

    return careful


def _error(reply: Reply) -> Error:
    assert isinstance(reply, Refused)
    return Error(FAILED if reply.failed else DECLINED, reply.reason)


@public_errors
def _hello(message: Message, context: Context) -> Message:
    """Who this node is. Only a node whose key was registered under a name is believed."""
    config = context.node_config
    owners = owners_of(config)
    for one in owners.values():
        OwnerFolder.of(one)
    said = ConfigRecord()
    if HOUSE in config:
        said["owners"] = list(owners)
    else:
        said["owner"] = next(iter(owners))
    return Message(RecordDict({"config": said}), reply_to=message)


def _makers(modules: Modules) -> Models:
    def maker(settings: Mapping[str, Any]) -> ModelMaker:
        from noisemarket.federated.models.torch_model import TorchMaker

        return TorchMaker(partial(modules, settings))

    return maker
