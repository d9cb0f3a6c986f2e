"""``noisemarket owner``: an owner's folder, set up once, and what its records have cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from noisemarket.cli.common import show
from noisemarket.cli.options import Json
from noisemarket.errors import BadInput


def init(
    folder: Annotated[str, Argument(metavar="FOLDER", help="The owner's new folder.")],
    name: Annotated[str, Option(help="The owner's name, as in the curator's scenario.")],
    records: Annotated[str, Option(help="CSV, Parquet or .npz file of records.")],
    privacy_cost: Annotated[float, Option(help="What privacy costs the owner.", min=0.0)],
    rho_cap: Annotated[float, Option(help="Most zCDP that it sells in one job.", min=0.0)],
    curator_key: Annotated[str, Option(help="The only curator to accept: its public key.")],
    rho_budget: Annotated[
        float | None, Option(help="Most zCDP that it sells in all jobs together.", min=0.0)
    ] = None,
    markup: Annotated[float, Option(help="What it wants above its cost, as a share.")] = 0.2,
) -> None:
    """Set up an owner's folder, and print the commands of Flower that let it take part."""
    from noisemarket.flower import need_flower
    from noisemarket.ledger.contract import is_key

    need_flower()
    from noisemarket.flower.host_files import NODE_CONFIG, NODE_KEY, set_up_owner
    from noisemarket.scenario.schema import GameSection

    if not is_key(curator_key):
        raise BadInput("--curator-key", curator_key, "give the 64 hex digits of the curator's key.")
    path, game = Path(folder), GameSection()
    config = {"owner": name, "curator-key": curator_key, "rho-cap": rho_cap}
    if rho_budget is not None:
        config["rho-budget"] = rho_budget
    preferences = {
        "privacy_cost": privacy_cost,
        "markup": markup,
        "payment_value": game.payment_value,
        "privacy_weight": game.privacy_weight,
    }
    set_up_owner(path, config, preferences, Path(records))
    typer.echo(
        f"The curator registers {path / NODE_KEY}.pub:\n"
        f"  flwr supernode register {NODE_KEY}.pub CONNECTION --name {name}\n"
        f"Then start the SuperNode:\n"
        f"  flower-supernode --superlink HOST:PORT --root-certificates ca.crt \\\n"
        f"    --auth-supernode-private-key {path / NODE_KEY} --node-config {path / NODE_CONFIG}"
    )


def account(
    folder: Annotated[
        str, Argument(metavar="FOLDER", help="An owner's folder, or a folder of several owners'.")
    ],
    as_json: Json = False,
) -> None:
    """Show what an owner's records have cost, what is left, and what they could still sell."""
    from noisemarket.show import account_report as report

    document = report.accounts(Path(folder))
    show(as_json, document, *report.accounts_shown(document))
