"""The Flower app of a market (``market_app``), written where ``flwr run`` wants one.

Flower sends an app's folder to every owner, with all JSON and TOML in it. ``fab-include`` keeps it
to the app's own files: the curator may have put its scenario beside them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_APP = Path(__file__).with_name("market_app")


def write_app(folder: Path) -> Path:
    """Write the app, for ``flwr run`` to take from there."""
    package = folder / _APP.name
    package.mkdir(parents=True, exist_ok=True)
    for file in _APP.glob("*.py"):
        shutil.copyfile(file, package / file.name)
    shutil.copyfile(_APP / "app.toml", folder / "pyproject.toml")
    return folder
