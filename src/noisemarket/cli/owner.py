"""``noisemarket owner``: what an owner's records have cost over all jobs. It only reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from noisemarket.cli.common import show
from noisemarket.cli.options import Json


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
