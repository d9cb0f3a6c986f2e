"""Settings and arrays of a message as Flower's records, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from noisemarket.flower.house import Said
from noisemarket.owner.owner_messages import Plain

HELLO = "query.hello"
"""The kind of the message that asks a node without a name who it is."""


def content(plain: Plain) -> RecordDict:
    """Settings and arrays as Flower's records."""
    config, arrays = plain
    out = RecordDict()
    if config:
        out["config"] = ConfigRecord(config)
    if arrays:
        out["arrays"] = array_record(arrays)
    return out


def array_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Arrays as a record."""
    return ArrayRecord({name: Array(one) for name, one in arrays.items()})


def plain_of(message: Said) -> Plain:
    """The settings and arrays of a message; what cannot be read is left out."""
    found: dict[str, NDArray[Any]] = {}
    arrays = message.content.get("arrays")
    for name, array in arrays.items() if isinstance(arrays, ArrayRecord) else ():
        try:
            value = array.numpy()
        except Exception:  # whatever the bytes do to the reader, it is the sender's loss
            continue
        if isinstance(value, np.ndarray):
            found[name] = value
    return dict(config_of(message)), found


def config_of(message: Said | None) -> Mapping[str, Any]:
    """The settings in a message; none if there are none."""
    config = None if message is None else message.content.get("config")
    return config if isinstance(config, ConfigRecord) else {}
