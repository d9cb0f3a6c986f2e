"""``noisemarket scenario``: scenarios in full, and every key explained."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import console, load


def scenario(
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    explain: Annotated[
        bool, Option("--explain", help="List every key: value, what it may be, meaning.")
    ] = False,
) -> None:
    """Print a scenario with all its settings, ready to be edited and run."""
    from rich.markup import escape
    from rich.table import Table

    from noisemarket.scenario import dump_scenario
    from noisemarket.scenario.explain import explained

    loaded = load(file, preset, settings)
    if not explain:
        print(dump_scenario(loaded), end="")
        return
    table = Table("key", "value", "allowed", "meaning", box=None, pad_edge=False)
    for row in explained(loaded):
        table.add_row(*map(escape, row))
    console().print(table)
