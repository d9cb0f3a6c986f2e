"""Noise under contract for any Flower app: a client mod around the app's own training.

The mod takes what the app would send back, its new model, and lets go only of this: the difference
to the global model, cut as a whole to the contracted norm, plus the owner's contracted noise. That
hides the owner's whole data (``sharded`` with a single shard), whatever the app does inside. To
hide one record among many at less noise, the protection must sit inside the training: see
``owner_app``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.flower.api import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from noisemarket.flower.owner_app import Task, arrays_of, public_errors
from noisemarket.flower.simulated_node import config_of_node
from noisemarket.owner.folder import Arrays, Declined, OwnerFolder
from noisemarket.owner.release import released
from noisemarket.privacy.noise import NoiseSource, round_noise
from noisemarket.privacy.statement import PrivacyBudget

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]


def contract_mod(arrays: str = "arrays", metrics: str = "metrics") -> Mod:
    """A client mod that clips, charges and adds the owner's noise to every training reply.

    Sigma, clip and cap come from the owner's own terms. The message's ``config`` says which ``job``
    and ``server-round`` it is, and may say ``sigma``: if it is another than the contracted one, the
    owner declines. All other records of the reply are dropped, because nothing accounts for them;
    ``num-examples`` becomes 1, so that strategies which weigh by it weigh owners alike.

    Args:
        arrays: the name of the record with the model, in the app's replies.
        metrics: the name of the record that is to hold ``num-examples``.

    Example:
        @app.train(mods=[contract_mod()])
        def train(message, context): ...
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        @public_errors
        def protected(message: Message, context: Context) -> Message:
            task = Task.of(message)
            folder = OwnerFolder.of(config_of_node(context.node_config))
            terms = task.terms(folder)
            protection = terms.build_protection()
            start = _numbers(arrays_of(message))

            def train(noise: NoiseSource) -> Arrays:
                reply = call_next(message, context)
                if reply.has_error():
                    raise Declined("training failed")
                trained = reply.content.get(arrays)
                if not isinstance(trained, ArrayRecord):
                    remedy = "is not an ArrayRecord: name the one with the model."
                    raise BadInput("reply", arrays, remedy)
                moved = _numbers(trained)
                own = round_noise(noise, terms.index, task.round_number)
                update = protection.protect(_update(start, moved), terms.sigma, own)
                return _moved(start, moved, update)

            def budget(release: Arrays) -> PrivacyBudget:
                return terms.budget(_floats(release), records=1)

            release = released(folder, terms, task.round_number, start, train, budget)
            model = ArrayRecord({name: Array(value) for name, value in release.items()})
            content = RecordDict({arrays: model, metrics: MetricRecord({"num-examples": 1})})
            return Message(content, reply_to=message)

        return protected(message, context)

    return mod


def parameters(arrays: ArrayRecord) -> int:
    """How many numbers of a model are trained and protected: all floating-point ones."""
    return _floats(_numbers(arrays))


def _floats(arrays: Arrays) -> int:
    return sum(array.size for array in arrays.values() if array.dtype.kind == "f")


def _numbers(record: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in record.items()}


def _update(start: Arrays, trained: Arrays) -> NDArray[np.float64]:
    """What training changed, as one vector over all arrays of floats.

    What is a float, the owner's own model says: averaging may have made floats of the curator's
    integers.
    """
    if [(n, a.shape) for n, a in start.items()] != [(n, a.shape) for n, a in trained.items()]:
        raise BadInput("reply", "model", "has other arrays than the global model.")
    changes = [
        (array.astype(np.float64) - start[name].astype(np.float64)).reshape(-1)
        for name, array in trained.items()
        if array.dtype.kind == "f"
    ]
    if not changes:
        raise BadInput("reply", "model", "has no array of floating-point numbers.")
    return np.concatenate(changes)


def _moved(start: Arrays, trained: Arrays, released: NDArray[Any]) -> Arrays:
    """The global model moved by what is released, in the kinds of numbers of the owner's own model;
    what is no float there keeps the curator's values."""
    out: dict[str, NDArray[Any]] = {}
    at = 0
    for name, array in start.items():
        kind = trained[name].dtype
        if kind.kind != "f":
            out[name] = array.astype(kind)
            continue
        part = released[at : at + array.size].reshape(array.shape)
        out[name] = (array.astype(np.float64) + part).astype(kind)
        at += array.size
    return out
