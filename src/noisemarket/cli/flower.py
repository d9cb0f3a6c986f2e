"""``noisemarket flower``: the market over Flower's processes on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from noisemarket.cli.options import MarketOptions, group, option, taking
from noisemarket.errors import BadInput

flower_app = group("Run the market over Flower, with a SuperLink and SuperNodes.")


@dataclass(frozen=True)
class UpOptions(MarketOptions):
    """What ``run`` takes, and the number of owners."""

    owners: int | None = option(
        "Owners, each a SuperNode; by default 5, or as the scenario says.", min=1
    )


@flower_app.command("up")
@taking(UpOptions, "scenario owners settings tls runtime seed out overwrite json")
def up(options: UpOptions) -> None:
    """Start Flower on this machine, run a market on it, and stop it."""
    from noisemarket.cli.options import FLOWER
    from noisemarket.cli.run import run

    owners = options.owners or (5 if options.scenario is None else None)
    given = [*([] if owners is None else [f"owners={owners}"]), *(options.settings or [])]
    run(replace(options, settings=given, baselines=False, engine=FLOWER))


@flower_app.command("app")
def app(
    folder: Annotated[str, Argument(metavar="FOLDER", help="Where to write it.")],
) -> None:
    """Write the Flower app of a market, for ``flwr run`` on a SuperLink of your own."""
    from noisemarket.files import unusable
    from noisemarket.flower.deploy.app_folder import write_app

    path = Path(folder)
    if path.exists():
        raise BadInput("FOLDER", folder, "exists already: name a new folder.")
    try:
        write_app(path)
    except OSError as problem:
        raise unusable("FOLDER", folder, "written", problem) from None
    typer.echo(f'Run it: flwr run {folder} CONNECTION --run-config \'scenario="..." folder="..."\'')


@flower_app.command("key")
def key(
    folder: Annotated[
        str, Argument(metavar="FOLDER", help="The curator's folder; created if needed.")
    ],
) -> None:
    """Print a curator's public key (owners set it as ``curator-key``); create it if needed."""
    from noisemarket.ledger.keys import KeyPair

    typer.echo(KeyPair.obtain(folder).public_hex)


@flower_app.command(
    "node", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def node(
    context: typer.Context,
    config: Annotated[
        str, Option("--node-config", help="The node's config file, or that of a house.")
    ],
    poll: Annotated[
        float, Option(min=0.1, max=60.0, help="Seconds between two looks for an app to start.")
    ] = 1.0,
    warm: Annotated[
        bool, Option("--warm", help="Copy processes from one that has imported everything.")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Check the config and the owners' folders, and end.")
    ] = False,
) -> None:
    """Run an owner's SuperNode; other options are those of flower-supernode."""
    from noisemarket.flower.deploy.owner_node import OwnerNode, check_node

    owners = check_node(Path(config))
    typer.echo(f"{config}: {', '.join(owners)} can take part.", err=True)
    if check:
        return
    options = ["--node-config", config, *context.args]
    running = OwnerNode(options, lambda line: typer.echo(line, err=True), poll, warm=warm)
    raise typer.Exit(running.run())


@flower_app.command("health")
def health(
    address: Annotated[
        str, Argument(metavar="HOST:PORT", help="A SuperNode's or SuperLink's own API.")
    ] = "127.0.0.1:9094",
    root_certificates: Annotated[
        str | None, Option(help="Of a SuperLink with TLS: its issuer's certificate.")
    ] = None,
    config: Annotated[
        str | None, Option("--node-config", help="Also check this node's config.")
    ] = None,
) -> None:
    """Say whether a SuperNode or a SuperLink answers; exit code 1 if it does not."""
    from noisemarket.flower.deploy.owner_node import check_node, is_healthy

    if config is not None:
        check_node(Path(config))
    problem = is_healthy(address, Path(root_certificates) if root_certificates else None)
    typer.echo(problem or f"{address} answers.", err=bool(problem))
    raise typer.Exit(1 if problem else 0)
