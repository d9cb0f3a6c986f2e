"""Settings and arrays of a message as Flower's records, and back; one message for a whole house.

A house is a hospital group, or a data centre, that runs one SuperNode for its owners. Each of them
has its own folder, key, journal, limits and contract. A message for the house holds what goes to
each owner, by name; what several get, such as the global model, is in it once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, RecordDict
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.files import is_open
from noisemarket.owner.folder import Declined
from noisemarket.owner.owner_messages import Plain

HELLO = "query.hello"
"""The kind of the message that asks a node without a name who it is."""


def content(plain: Plain, record: ArrayRecord | None = None) -> RecordDict:
    """Settings and arrays as the content of a message; ``record`` if the arrays are in one."""
    config, arrays = plain
    out = RecordDict({"config": ConfigRecord(config)})
    if arrays:
        out["arrays"] = record or array_record(arrays)
    return out


def array_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Arrays as a record. Models go in single precision."""
    with np.errstate(over="ignore"):  # a model that has diverged may become infinite
        sent = {n: one.astype("f4") if one.dtype == "f8" else one for n, one in arrays.items()}
    return ArrayRecord({name: Array(one) for name, one in sent.items()})


def plain_of(said: RecordDict) -> Plain:
    """The settings and arrays of a message's content; what cannot be read is left out."""
    found: dict[str, NDArray[Any]] = {}
    arrays = said.get("arrays")
    for name, array in arrays.items() if isinstance(arrays, ArrayRecord) else ():
        try:
            value = array.numpy()
        except Exception:  # whatever the bytes do to the reader, it is the sender's loss
            continue
        if isinstance(value, np.ndarray):
            found[name] = value
    return dict(config_of(said)), found


def config_of(said: RecordDict) -> Mapping[str, Any]:
    """The settings in a message's content; none if there are none."""
    config = said.get("config")
    return config if isinstance(config, ConfigRecord) else {}


HOUSE = "house"
"""The key of a node's config that names the file of its owners, and of a message's contents."""

_ERROR = "error"


def owners_of(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The config of every owner that a node serves, by the owner's name.

    With ``house`` the node's config names a TOML file with a table for each owner, whose keys are
    those of a node's config; what the node's own config says holds for all.
    """
    if HOUSE not in config:
        return {str(config.get("owner", "")): config}
    path = Path(str(config[HOUSE]))
    if not path.is_file():
        raise Declined("the file of the house is not there")
    if is_open(path):
        raise Declined("the file of the house is open to others: chmod 600")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise Declined("the file of the house cannot be read") from None
    common = {key: value for key, value in config.items() if key != HOUSE}
    if not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise Declined("the file of the house has no table for each owner")
    return {name: {**common, **table, "owner": name} for name, table in tables.items()}


def together(parts: Mapping[str, RecordDict | Error]) -> RecordDict:
    """One content for a house, of what is for each owner, or of what each of them answers."""
    records: dict[str, Any] = {}
    names: dict[int, str] = {}
    plans = []
    for part in parts.values():
        if isinstance(part, Error):
            said = ConfigRecord({"code": part.code, "reason": part.reason or ""})
            part = RecordDict({_ERROR: said})
        plan = {}
        for name, record in part.items():
            key = names.setdefault(id(record), str(len(names)))
            records[key], plan[name] = record, key
        plans.append(json.dumps(plan))
    table = ConfigRecord({"owners": list(parts), "records": plans})
    return RecordDict({HOUSE: table, **records})


def apart(content: RecordDict) -> dict[str, RecordDict] | None:
    """What is for each owner, by name, as the content of a message of its own; None if the content
    is not for a house."""
    table = content.get(HOUSE)
    if not isinstance(table, ConfigRecord):
        return None
    owners, plans = table.get("owners"), table.get("records")
    try:
        if not isinstance(owners, list) or not isinstance(plans, list):
            raise TypeError
        parts = {}
        for owner, plan in zip(owners, plans, strict=True):
            named = dict[str, str](json.loads(str(plan)))
            parts[str(owner)] = RecordDict({name: content[k] for name, k in named.items()})
        if len(parts) != len(owners):
            raise ValueError("an owner is named twice")
    except (KeyError, TypeError, ValueError):
        raise Declined("the message for the house cannot be read") from None
    return parts


def refusal(part: RecordDict) -> str | None:
    """Why an owner of a house has not answered; None if it has."""
    said = part.get(_ERROR)
    return str(said.get("reason", "")) if isinstance(said, ConfigRecord) else None


def read_houses(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The curator's list of houses: the owners of a job behind each SuperNode, by the node's name.

    It is a TOML file with lines such as ``south-group = ["south-1", "south-2"]``.
    """
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise BadInput("houses", path.name, f"cannot be read ({problem}).") from None
    seen: set[str] = set()
    for house, owners in listed.items():
        for owner in owners if isinstance(owners, list) else [owners]:
            if owner not in names:
                raise BadInput("houses", owner, f"of {house} is not an owner of this job.")
            if owner in seen:
                raise BadInput("houses", owner, "is in two houses: name it once.")
            seen.add(owner)
        if not isinstance(owners, list) or house in names:
            remedy = 'give lines such as house = ["owner"], with a name that no owner has.'
            raise BadInput("houses", house, remedy)
    return {house: list(owners) for house, owners in listed.items()}
