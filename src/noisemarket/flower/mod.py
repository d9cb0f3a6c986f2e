"""Noise under contract for any Flower app: a client mod around the app's own training.

The mod takes what the app would send back, its new model, and lets go only of this: the difference
to the global model, cut as a whole to the contracted norm, plus the owner's contracted noise. That
hides the owner's whole data (``sharded`` with a single shard), whatever the app does inside. To
hide one record among many at less noise, the protection must sit inside the training: see
``client``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.flower.api import (
    Array,
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from noisemarket.flower.owner import (
    OwnerFolder,
    Refused,
    agreed,
    arrays_of,
    discreet,
    task_of,
)
from noisemarket.privacy.noise import NoiseSource

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]


def contract_mod(arrays: str = "arrays", metrics: str = "metrics") -> Mod:
    """A client mod that clips, charges and adds the owner's noise to every training reply.

    Sigma, clip and cap come from the owner's own terms. The message says which ``job`` and which
    ``round`` it is in its ``config``, and may say ``sigma``: if it is another than the contracted
    one, the owner refuses. All other records of the reply are dropped, because nothing accounts for
    them; ``num-examples`` becomes 1, so that strategies which weigh by it weigh owners alike. Use
    it on training alone: ``@app.train(mods=[contract_mod()])``.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        @discreet
        def protected(message: Message, context: Context) -> Message:
            task, owner = task_of(message), OwnerFolder.of(context)
            terms = agreed(owner, task)
            protection = PROTECTIONS.find(terms.protection).from_settings(terms.settings)
            start = _numbers(arrays_of(message))

            def make(noise: NoiseSource) -> dict[str, NDArray[Any]]:
                reply = call_next(message, context)
                if reply.has_error():
                    raise Refused("training failed")
                trained = reply.content.get(arrays)
                if not isinstance(trained, ArrayRecord):
                    remedy = "is no ArrayRecord: name the one with the model."
                    raise BadInput("reply", arrays, remedy)
                moved = _numbers(trained)
                released = protection.protect(_update(start, moved), terms.sigma, noise)
                return _moved(start, moved, released)

            released = owner.once(terms, task.round_number, start, make)
            size = sum(array.size for array in released.values() if array.dtype.kind == "f")
            budget = terms.budget(protection, size, records=1)
            owner.charge(terms, budget, task.round_number, released)
            return Message(
                RecordDict(
                    {
                        arrays: ArrayRecord({n: Array(value) for n, value in released.items()}),
                        metrics: MetricRecord({"num-examples": 1}),
                    }
                ),
                reply_to=message,
            )

        return protected(message, context)

    return mod


def _numbers(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}


def _update(
    start: dict[str, NDArray[Any]], trained: dict[str, NDArray[Any]]
) -> NDArray[np.float64]:
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


def _moved(
    start: dict[str, NDArray[Any]], trained: dict[str, NDArray[Any]], released: NDArray[Any]
) -> dict[str, NDArray[Any]]:
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
