"""``noisemarket flower``: the market over Flower's processes on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

flower_app = typer.Typer(
    help="The market over Flower: real SuperLink and SuperNodes.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)


@flower_app.command("up")
def up(
    scenario: Annotated[
        str | None, typer.Argument(help="Scenario file (TOML); without one, the preset alone.")
    ] = None,
    owners: Annotated[
        int | None,
        typer.Option(min=1, help="Owners, each a SuperNode; 5 where no file says how many."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="flower: certificates and keys for all.")
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    out: Annotated[str | None, typer.Option(help="Run folder; by default a new one.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Start a deployment on this machine, run a market on it, and stop it all."""
    from noisemarket.cli.common import Request
    from noisemarket.cli.engines import FLOWER
    from noisemarket.cli.run import run

    if owners is None and scenario is None:
        owners = 5
    given = [*([] if owners is None else [f"owners={owners}"]), *(settings or [])]
    request = Request(scenario, None, given, seed, None, None, out, overwrite, as_json)
    run(request, None, None, full=False, baselines=False, engine=FLOWER, tls=tls)


@flower_app.command("app")
def app(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where to write it.")],
) -> None:
    """Write the Flower app of a market, for ``flwr run`` on a SuperLink of your own."""
    from pathlib import Path

    from noisemarket.errors import BadInput
    from noisemarket.flower.deploy.app_folder import write_app

    place = Path(folder)
    if place.exists():
        raise BadInput("FOLDER", folder, "is there already: name a new one.")
    try:
        write_app(place)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise BadInput("FOLDER", folder, f"cannot be written ({reason}).") from None
    typer.echo(f'Run it: flwr run {folder} CONNECTION --run-config \'scenario="..." folder="..."\'')


@flower_app.command("key")
def key(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The curator's folder; made if there is none.")
    ],
) -> None:
    """Print a curator's public key, made on the first call: owners name it as ``curator-key``."""
    from noisemarket.ledger.keys import KeyPair

    typer.echo(KeyPair.obtain(folder).public_hex)
