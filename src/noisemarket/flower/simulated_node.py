"""The config of a node that Flower simulates: such a node knows its number, and nothing else."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

NODES = "NOISEMARKET_NODES"
"""The variable that names the folder with the nodes' configs, where nodes are simulated."""

_NUMBER = "partition-id"


def node_file(folder: Path, number: int) -> Path:
    """Where the config of a simulated node is."""
    return folder / f"{number}.toml"


def config_of_node(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node's config: what its SuperNode was started with, or the file of a simulated one.

    Args:
        given: the config in the context of a message.
    """
    folder, number = os.environ.get(NODES), given.get(_NUMBER)
    if folder is None or type(number) is not int or "owner-folder" in given:
        return given
    return _read(node_file(Path(folder), number))


@lru_cache(maxsize=4096)
def _read(path: Path) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
