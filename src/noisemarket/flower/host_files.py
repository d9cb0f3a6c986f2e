"""Files that hosts need: the app, the curator's folder, an owner's folder, config and node key.

Flower sends a run's settings to every SuperNode. So they hold names, and the folder in which the
curator has these is a variable of the SuperLink's environment, which its ServerApps inherit.
Flower also sends an app's folder to every owner, with all JSON and TOML in it; ``fab-include``
keeps it to the app's own files: the curator may have put its scenario beside them.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from noisemarket.errors import BadInput
from noisemarket.federated.table_files import SUFFIXES, columns_of
from noisemarket.files import load_arrays, private_folder, unusable, write_atomic
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder

CURATOR = "NOISEMARKET_CURATOR"
"""The variable that names the curator's folder."""


def curator_path(setting: str, name: str) -> Path:
    """The path that a ``name`` inside the curator's folder stands for, in this setting of a run."""
    given = PurePath(name)
    if given.is_absolute() or ".." in given.parts:
        remedy = f"give a name inside the folder that {CURATOR} names: owners see the settings."
        raise BadInput(setting, name, remedy)
    if not (root := os.environ.get(CURATOR)):
        remedy = "set it to the curator's folder in the environment of the SuperLink."
        raise BadInput(CURATOR, "", remedy)
    return Path(root) / given


_APP = Path(__file__).with_name("market_app")


def write_app(folder: Path) -> Path:
    """Write the app, for ``flwr run`` to take from there."""
    package = folder / _APP.name
    package.mkdir(parents=True, exist_ok=True)
    for file in _APP.glob("*.py"):
        shutil.copyfile(file, package / file.name)
    shutil.copyfile(_APP / "app.toml", folder / "pyproject.toml")
    return folder


NODE_CONFIG, NODE_KEY = "node.toml", "node-key"


def set_up_owner(
    folder: Path, config: Mapping[str, Any], preferences: Mapping[str, float], records: Path
) -> None:
    """Write an owner's records, preferences, node config and the key of its SuperNode.

    ``config`` has the keys of ``node.toml`` without ``owner-folder``. ``records`` is a CSV or
    Parquet file, to be read by the description in a contract, or an .npz file with ``images``
    (ready for the model) and ``labels``. The key is one that Flower takes for node authentication:
    the curator registers its public half under the owner's name.
    """
    if folder.exists():
        raise BadInput("FOLDER", str(folder), "exists already: name a new folder.")
    own, table = OwnerFolder(str(config["owner"]), folder), records.suffix.lower() in SUFFIXES
    if table and not records.is_file():
        raise BadInput("records", str(records), "does not exist: name a file of records.")
    arrays = None if table else _read_records(records)
    if table:
        columns_of(records)  # what no description would make readable is told now
    try:
        private_folder(folder)
        if arrays is None:
            own.keep_table(records)
        else:
            own.keep_records(*arrays)
        own.keep_private(preferences)
        document = {**config, "owner-folder": str(folder.resolve())}
        write_atomic(folder / NODE_CONFIG, tomli_w.dumps(document), private=True)
        write_node_key(folder / NODE_KEY)
    except OSError as problem:
        raise unusable("FOLDER", folder, "written", problem) from None
    check_node(folder / NODE_CONFIG)


def _read_records(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        arrays = load_arrays(path)
        images, labels = arrays["images"].astype(np.float32), arrays["labels"].astype(np.int64)
    except OSError as problem:
        raise unusable("records", path, "read", problem) from None
    except (KeyError, ValueError) as problem:
        remedy = f"is not an .npz file with images and labels ({problem})."
        raise BadInput("records", str(path), remedy) from None
    if labels.ndim != 1 or len(images) != len(labels) or not len(labels):
        raise BadInput("records", str(path), "give one label for each image.")
    return images, labels


def write_node_key(path: Path) -> Path:
    """Write a key pair for a SuperNode; gives the file of the public key."""
    key, public = ec.generate_private_key(ec.SECP384R1()), path.with_suffix(".pub")
    text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_atomic(path, text, private=True)
    write_atomic(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return public


def check_node(path: Path) -> list[str]:
    """The names of the owners of a node config, if each of them could take part in a job."""
    from noisemarket.flower.records import owners_of

    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise unusable("NODE_CONFIG", path, "read", problem) from None
    except ValueError as problem:
        raise BadInput("NODE_CONFIG", str(path), f"is not TOML ({problem}).") from None
    try:
        owners = owners_of(config)
        for one in owners.values():
            OwnerAgent(OwnerFolder.of(one), one).limits()
    except Declined as problem:
        raise BadInput("NODE_CONFIG", str(path), f"{problem}.") from None
    return list(owners)
