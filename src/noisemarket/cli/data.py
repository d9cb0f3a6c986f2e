"""``noisemarket data``: describe records, and check owners' tables against a description."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from noisemarket.cli.common import show
from noisemarket.cli.options import Json

_SHOWN = 3


def describe(
    file: Annotated[
        str, Argument(metavar="FILE", help="CSV or Parquet file of the curator's own records.")
    ],
    label: Annotated[str, Option(help="Column to be predicted; by default the last.")] = "",
) -> None:
    """Draft the description of a record (columns.toml) from test records, never from owners'."""
    from noisemarket.federated.describe import describe as draft

    typer.echo(draft(Path(file), label), nl=False)


def check(
    folder: Annotated[
        str, Argument(metavar="FOLDER", help="Folder with a table per owner, or one table.")
    ],
    as_json: Json = False,
) -> None:
    """Show every owner's records, labels, and values outside of the description (columns.toml)."""
    from rich.text import Text

    from noisemarket.federated.owner_tables import check_tables
    from noisemarket.show.style import table_of

    found, remarks = check_tables(Path(folder))
    problems = [one.problem for one in found if one.problem]
    table = table_of(None, ("owner", "labels", "outside", "missing"), "records")
    for one in found:
        if not one.problem:
            counts = map(_counted, (one.labels, one.outside, one.missing))
            table.add_row(*map(Text, (one.owner, *counts, f"{one.records:,}")))
    document = {"owners": [asdict(one) for one in found], "remarks": remarks}
    meant = (
        "Outside: numbers beyond their range, which are clipped, and texts that are not listed. "
        "Missing: empty cells."
    )
    show(as_json, document, table, meant, *problems, *remarks)
    if problems:
        raise typer.Exit(2)


def _counted(counts: dict[str, int]) -> str:
    """The largest counts by name, and how many there are in all if more."""
    most = sorted((one for one in counts.items() if one[1]), key=lambda one: -one[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in most[:_SHOWN])
    if len(most) > _SHOWN:
        shown += f", in all {sum(counts.values()):,}"
    return shown or "-"
