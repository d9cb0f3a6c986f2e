"""Files that a variable of a host's environment names, and that no message names.

Flower sends a run's settings to every SuperNode. So they hold names, and the folder in which the
curator has these is a variable of the SuperLink's environment, which its ServerApps inherit. A node
that Flower simulates knows its number and nothing else: its config is the file of that number.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from noisemarket.errors import BadInput

CURATOR = "NOISEMARKET_CURATOR"
"""The variable that names the curator's folder."""

NODES = "NOISEMARKET_NODES"
"""The variable that names the folder with the nodes' configs, where nodes are simulated."""


def curator_path(setting: str, name: str) -> Path:
    """The path that a name in a run's settings stands for.

    Args:
        setting: which setting it is.
        name: a name inside the curator's folder; ``.`` is that folder.

    Raises:
        BadInput: it is a path, or the curator's folder is not known.
    """
    given = PurePath(name)
    if given.is_absolute() or ".." in given.parts:
        remedy = f"give a name inside the folder that {CURATOR} names: owners see the settings."
        raise BadInput(setting, name, remedy)
    if not (root := os.environ.get(CURATOR)):
        remedy = "set it to the curator's folder in the environment of the SuperLink."
        raise BadInput(CURATOR, "", remedy)
    return Path(root) / given


def node_file(folder: Path, number: int) -> Path:
    """Where the config of a simulated node is."""
    return folder / f"{number}.toml"


def config_of_node(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node's config, by what the context of a message gives: what its SuperNode was started with,
    or the file of a simulated one."""
    folder, number = os.environ.get(NODES), given.get("partition-id")
    if folder is None or type(number) is not int or "owner-folder" in given:
        return given
    return _read(node_file(Path(folder), number))


@lru_cache(maxsize=4096)
def _read(path: Path) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
