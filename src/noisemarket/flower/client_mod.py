"""Noise under contract for any Flower app: a client mod around the app's own training.

The mod takes what the app would send back, its new model, and lets go only of this: the difference
to the global model, cut as a whole to the contracted norm, plus the owner's contracted noise. That
hides the owner's whole data (``sharded`` with a single shard), whatever the app does inside. To
hide one record among many at less noise, the protection must sit inside the training: see
``owner_app``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Weights
from noisemarket.flower.owner_app import public_errors
from noisemarket.flower.records import config_of
from noisemarket.owner.agent import own_terms
from noisemarket.owner.folder import Arrays, Declined, OwnerFolder
from noisemarket.owner.owner_messages import Train
from noisemarket.owner.round import released
from noisemarket.owner.terms import budget_of, single_shard
from noisemarket.privacy.noise import NoiseSource, round_noise

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]


def contract_mod(arrays: str = "arrays", metrics: str = "metrics") -> Mod:
    """A client mod that clips, charges and adds the owner's noise to every training reply.

    Sigma, clip and cap come from the owner's own terms. The message's ``config`` says which ``job``
    and ``server-round`` it is, and may say ``sigma``: if it is another than the contracted one, the
    owner declines. All other records of the reply are dropped, because nothing accounts for them;
    ``num-examples`` becomes 1, so that strategies which weigh by it weigh owners alike.

    Args:
        arrays: the name of the record with the model, in messages and in the app's replies.
        metrics: the name of the record that is to hold ``num-examples``.

    Example:
        @app.train(mods=[contract_mod()])
        def train(message, context): ...
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        @public_errors
        def protected(message: Message, context: Context) -> Message:
            if not (config := config_of(message.content)):
                raise Declined("the message has no config")
            task = Train(*_round_of(config), np.empty(0))
            folder = OwnerFolder.of(context.node_config)
            contract, plan = own_terms(folder, task)
            protection = single_shard(contract)
            given = message.content.get(arrays)
            if not isinstance(given, ArrayRecord) or not given:
                raise Declined("the message has no model")
            start, size = numbers(given), int(plan["model"]["parameters"])

            def train(noise: NoiseSource) -> Arrays:
                reply = call_next(message, context)
                if reply.has_error():
                    raise Declined("training failed")
                sent = reply.content.get(arrays)
                if not isinstance(sent, ArrayRecord):
                    remedy = "is not an ArrayRecord: name the one with the model."
                    raise BadInput("reply", arrays, remedy)
                trained = numbers(sent)
                model = _in_own_kinds(start, trained)
                if model.size != size:
                    raise Declined("the model is not the contracted one")
                before = model.vector(start)
                update = model.vector(trained) - before
                own = round_noise(noise, plan["index"], task.round_number)
                return model.arrays(before + protection.protect_whole(update, contract.sigma, own))

            number = task.round_number
            budget = budget_of(contract, size, 1, folder.neighbours())
            release = released(folder, contract, plan, number, start, train, budget)
            counted = MetricRecord({"num-examples": 1})
            content = RecordDict({arrays: record_of(release), metrics: counted})
            return Message(content, reply_to=message)

        return protected(message, context)

    return mod


def _round_of(config: Mapping[str, Any]) -> tuple[str, int, float | None]:
    """The job, the round and the expected sigma of a message, each checked."""
    job, sigma, number = (config.get(name) for name in ("job", "sigma", "server-round"))
    if not isinstance(job, str):
        raise Declined("the message names no job")
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 2**31:
        raise Declined("the message names no round")
    if sigma is not None and not isinstance(sigma, float):
        raise Declined("sigma is not a number")
    return job, number, sigma


def parameters(arrays: ArrayRecord) -> int:
    """How many numbers of a model are trained and protected: all floating-point ones."""
    return FloatVector(numbers(arrays), "arrays").size


class FloatVector:
    """A model as one vector of its floating-point numbers; all else stays. ``field`` is for
    errors."""

    def __init__(self, arrays: Arrays, field: str) -> None:
        self._first = arrays
        self.floats = {name: one for name, one in arrays.items() if one.dtype.kind == "f"}
        """The arrays that the vector is made of."""
        if not self.floats:
            raise BadInput(field, "model", "has no array of floating-point numbers.")
        self.size = sum(one.size for one in self.floats.values())

    def vector(self, arrays: Arrays) -> Weights:
        return np.concatenate([arrays[name].astype(np.float64).reshape(-1) for name in self.floats])

    def arrays(self, weights: Weights) -> Arrays:
        out, at = dict(self._first), 0
        for name, first in self.floats.items():
            part = weights[at : at + first.size].reshape(first.shape)
            out[name] = part.astype(first.dtype)
            at += first.size
        return out


def numbers(record: ArrayRecord) -> Arrays:
    """The arrays of a record."""
    return {name: array.numpy() for name, array in record.items()}


def record_of(arrays: Arrays) -> ArrayRecord:
    """A record of arrays."""
    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def _in_own_kinds(start: Arrays, trained: Arrays) -> FloatVector:
    """The global model in the kinds of numbers of the owner's own model, which says what a float
    is: averaging may have made floats of the curator's integers."""
    if [(n, a.shape) for n, a in start.items()] != [(n, a.shape) for n, a in trained.items()]:
        raise BadInput("reply", "model", "has other arrays than the global model.")
    kinds = {name: array.dtype for name, array in trained.items()}
    return FloatVector({name: one.astype(kinds[name]) for name, one in start.items()}, "reply")
