"""``noisemarket flower``: the market over Flower, between hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from noisemarket.errors import BadInput


def app(
    folder: Annotated[str, Argument(metavar="FOLDER", help="Where to write it.")],
) -> None:
    """Write the Flower app of a market, for "flwr run" on a SuperLink of your own."""
    from noisemarket.files import unusable
    from noisemarket.flower.host_files import write_app

    path = Path(folder)
    if path.exists():
        raise BadInput("FOLDER", folder, "exists already: name a new folder.")
    try:
        write_app(path)
    except OSError as problem:
        raise unusable("FOLDER", folder, "written", problem) from None
    typer.echo(f'Run it: flwr run {folder} CONNECTION --run-config \'scenario="..." folder="..."\'')


def key(
    folder: Annotated[
        str, Argument(metavar="FOLDER", help="The curator's folder; created if needed.")
    ],
) -> None:
    """Print a curator's public key (owners set it as curator-key); create it if needed."""
    from noisemarket.ledger.keys import KeyPair

    typer.echo(KeyPair.obtain(folder).public_hex)


def check(
    config: Annotated[
        str, Argument(metavar="NODE_CONFIG", help="The config file of an owner's SuperNode.")
    ],
) -> None:
    """Check a SuperNode's config and its owners' folders before it starts."""
    from noisemarket.flower import need_flower

    need_flower()
    from noisemarket.flower.host_files import check_node

    typer.echo(f"{', '.join(check_node(Path(config)))} can take part.")
