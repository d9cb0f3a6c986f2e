"""Files that a variable of a host's environment names, and that no message names.

Flower sends a run's settings to every SuperNode. So they hold names, and the folder in which the
curator has these is a variable of the SuperLink's environment, which its ServerApps inherit.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from noisemarket.errors import BadInput

CURATOR = "NOISEMARKET_CURATOR"
"""The variable that names the curator's folder."""


def curator_path(setting: str, name: str) -> Path:
    """The path that a name in a run's settings stands for.

    Args:
        setting: which setting it is.
        name: a name inside the curator's folder; ``.`` is that folder.
    """
    given = PurePath(name)
    if given.is_absolute() or ".." in given.parts:
        remedy = f"give a name inside the folder that {CURATOR} names: owners see the settings."
        raise BadInput(setting, name, remedy)
    if not (root := os.environ.get(CURATOR)):
        remedy = "set it to the curator's folder in the environment of the SuperLink."
        raise BadInput(CURATOR, "", remedy)
    return Path(root) / given
