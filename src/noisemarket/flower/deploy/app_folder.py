"""The Flower app of a market, written where ``flwr run`` wants one: a folder with two short files.

``examples/flower-market`` is the same app, to be read and changed. Flower sends an app's folder to
every owner, with all JSON and TOML in it. ``fab-include`` keeps it to these files: the curator may
have put its scenario beside them.
"""

from __future__ import annotations

from pathlib import Path

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "noisemarket-app"
version = "0.1.0"
description = "A market for differential-privacy noise, on Flower."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["market_app"]

[tool.flwr.app]
publisher = "noisemarket"
fab-include = ["/market_app/**/*.py"]

[tool.flwr.app.components]
serverapp = "market_app.server_app:app"
clientapp = "market_app.client_app:app"

[tool.flwr.app.config]
scenario = ""
folder = ""
curator-folder = ""
houses = ""
insecure = false
timeout = 600.0
grace = 600.0
wait = 120.0
at-once = 0
"""

_CLIENT = '''\
"""An owner."""

from noisemarket.flower.owner_app import owner_app

app = owner_app()
'''

_SERVER = '''\
"""The curator."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from noisemarket.flower.curator_app import market_over_flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the market that the run config names."""
    market_over_flower(grid, context.run_config)
'''


def write_app(folder: Path) -> Path:
    """Write the app, for ``flwr run`` to take from there."""
    package = folder / "market_app"
    package.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (package / "__init__.py").write_text('"""A market on Flower."""\n', encoding="utf-8")
    (package / "client_app.py").write_text(_CLIENT, encoding="utf-8")
    (package / "server_app.py").write_text(_SERVER, encoding="utf-8")
    return folder
