"""A finished market for other tools: MLflow, TensorBoard, or CSV files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from noisemarket.errors import BadInput, MissingExtra, NoisemarketError
from noisemarket.files import read_text, unusable, write_atomic
from noisemarket.formats import csv_text
from noisemarket.market.outcome import OUTCOME, Outcome
from noisemarket.market.run_folder import SCENARIO
from noisemarket.scenario import load_scenario

_FILES = ("scenario.toml", "summary.json", OUTCOME, "contracts.csv")
_EXPERIMENT, _JOB = "noisemarket", "noisemarket.job"
_AT_ONCE = 100
"""Parameters that MLflow takes in one call."""


@dataclass(frozen=True)
class FinishedRun:
    """A market as tools for experiments see it: parameters, metrics, results and files."""

    name: str
    job: str
    parameters: dict[str, str]
    rounds: list[dict[str, float]]
    """What was measured in each round, from the first on; a loss that is not finite is left out."""
    results: dict[str, float]
    files: list[Path]

    @classmethod
    def read(cls, folder: Path) -> FinishedRun:
        """The market in a run folder."""
        outcome = Outcome.load(folder)
        summary = json.loads(read_text("run", folder / "summary.json"))
        scenario = load_scenario(folder / SCENARIO).model_dump(mode="json")
        figures = sorted((folder / "figures").glob("*.png"))
        return cls(
            name=folder.resolve().name,
            job=outcome.job,
            parameters=dict(_flat(scenario)),
            rounds=[dict(_numbers(result.to_dict())) for result in outcome.results],
            results=dict(_numbers(summary)),
            files=[path for name in _FILES if (path := folder / name).is_file()] + figures,
        )


def to_csv(run: FinishedRun, folder: Path) -> str:
    """Write rounds.csv, parameters.csv and results.csv into a folder."""
    columns = list(dict.fromkeys(name for one in run.rounds for name in one))
    rounds = (
        [number, *(one.get(name) for name in columns)] for number, one in enumerate(run.rounds, 1)
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise unusable("out", folder, "written", problem) from None
    write_atomic(folder / "rounds.csv", csv_text(["round", *columns], rounds))
    for name, values in (("parameters", run.parameters), ("results", run.results)):
        write_atomic(folder / f"{name}.csv", csv_text(["name", "value"], values.items()))
    return f"rounds.csv, parameters.csv and results.csv in {folder}"


def to_tensorboard(run: FinishedRun, folder: Path) -> str:
    """Write a log folder: metrics as scalars, figures as images, parameters as text."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise MissingExtra("Export to TensorBoard", "tensorboard") from None
    from matplotlib.image import imread

    if folder.exists() and any(folder.iterdir()):
        raise BadInput("out", str(folder), "is not empty: name a new folder.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".export-", dir=folder.parent) as place:
        logs = Path(place) / "logs"
        with SummaryWriter(str(logs), write_to_disk=True) as writer:
            for number, one in enumerate(run.rounds, start=1):
                for name, value in one.items():
                    writer.add_scalar(name, value, number)
            for name, value in run.results.items():
                writer.add_scalar(f"results/{name}", value, len(run.rounds))
            rows = "\n".join(f"| {name} | {value} |" for name, value in run.parameters.items())
            writer.add_text("parameters", f"| setting | value |\n|---|---|\n{rows}")
            for path in run.files:
                if path.suffix == ".png":
                    writer.add_image(path.stem, imread(path), dataformats="HWC")
        logs.replace(folder)
    return f"{folder}, for: tensorboard --logdir {folder}"


def to_mlflow(run: FinishedRun, store: str | None) -> str:
    """Add a run to MLflow, at a tracking URI or where MLflow itself would."""
    try:
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingExtra("Export to MLflow", "mlflow") from None
    try:
        client = MlflowClient(store)
        found = client.get_experiment_by_name(_EXPERIMENT)
        experiment = found.experiment_id if found else client.create_experiment(_EXPERIMENT)
        same = f"tags.`{_JOB}` = '{run.job}' and attributes.status = 'FINISHED'"
        for one in client.search_runs([experiment], same):
            raise BadInput("run", run.name, f"is in MLflow already, as {one.info.run_id}.")
        created = client.create_run(experiment, run_name=run.name, tags={_JOB: run.job})
        new, now = created.info.run_id, created.info.start_time
        try:
            params = [Param(name, value) for name, value in run.parameters.items()]
            for first in range(0, len(params), _AT_ONCE):
                client.log_batch(new, params=params[first : first + _AT_ONCE])
            for number, values in enumerate([*run.rounds, run.results], start=1):
                step = min(number, len(run.rounds))
                client.log_batch(
                    new, metrics=[Metric(name, value, now, step) for name, value in values.items()]
                )
            for path in run.files:
                client.log_artifact(new, str(path))
        except BaseException:
            with suppress(MlflowException):  # what failed may be MLflow itself
                client.set_terminated(new, "FAILED")
            raise
        client.set_terminated(new)
    except MlflowException as problem:
        said = str(problem).partition("\n")[0]
        raise NoisemarketError(f"MLflow refuses the run: {said.rstrip('.')}.") from None
    return f"run {new} of experiment {_EXPERIMENT} in MLflow"


def _flat(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their full names; lists and tables of one's own as JSON."""
    for name, value in tree.items():
        if isinstance(value, dict) and value and not before:
            yield from _flat(value, f"{name}.")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)


def _numbers(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a document by their full names; the length of a list of owners."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{name}.")
        elif name in ("delivered", "refused"):
            yield f"{before}{name}", len(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "number":
            yield f"{before}{name}", value
