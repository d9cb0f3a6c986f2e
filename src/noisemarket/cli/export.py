"""``noisemarket export``: a finished market for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from noisemarket.cli.common import show
from noisemarket.cli.options import Json
from noisemarket.errors import BadInput


def export(
    folder: Annotated[str, Argument(metavar="RUN", help="Run folder of a finished market.")],
    to: Annotated[str, Option(help="mlflow, tensorboard or csv.")],
    out: Annotated[
        str | None,
        Option(
            metavar="WHERE",
            help="A folder, by default RUN/export/csv or RUN/export/tensorboard; of MLflow the "
            "tracking URI, such as sqlite:///mlflow.db, by default MLflow's own.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write parameters, metrics of every round, results and figures for MLflow, TensorBoard or a
    spreadsheet."""
    from noisemarket.show import export as other

    if to not in ("mlflow", "tensorboard", "csv"):
        raise BadInput("--to", to, "choose mlflow, tensorboard or csv.")
    run = other.FinishedRun.read(Path(folder))
    if to == "mlflow":
        written = other.to_mlflow(run, out)
    else:
        write = other.to_csv if to == "csv" else other.to_tensorboard
        written = write(run, Path(out) if out else Path(folder) / "export" / to)
    facts = {"name": run.name, "job": run.job, "rounds": len(run.rounds), "written": written}
    show(as_json, facts, f"Exported {run.name} (rounds: {len(run.rounds):,}): {written}.")
