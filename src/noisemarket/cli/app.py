"""The commands and their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Argument, Option

from noisemarket.cli.flower import flower_app
from noisemarket.cli.ledger import ledger_app
from noisemarket.cli.options import (
    HELP,
    MECHANISMS,
    Json,
    MarketOptions,
    Overwrite,
    Request,
    Workers,
    command,
    epilog,
    flag,
    option,
)

app = typer.Typer(
    name="noisemarket",
    help="A market in which data owners of a federated-learning job sell part of their "
    "differential-privacy noise to the curator, by contract.",
    epilog=epilog("run", "run --set owners=20 --out runs/mine", "run --help"),
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)

app.add_typer(ledger_app, name="ledger")
app.add_typer(flower_app, name="flower")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from noisemarket import __version__

        typer.echo(f"noisemarket {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


command(
    app, "run", "run", "run mine.toml --set owners=20 --seed 7 --out runs/mine",
    "run --resume runs/mine",
    takes="scenario preset settings mechanism budget target_accuracy seed out overwrite resume "
    "baselines draws engine workers json",
)(MarketOptions)  # fmt: skip


@command(app, "dashboard", "dashboard runs --port 8080")
@dataclass(frozen=True)
class DashboardOptions:
    """Show runs in a browser: watch, start and compare them, and ask what if."""

    runs: str = option(
        "Folder that holds run folders.", default="runs", kind=Argument, metavar="RUNS_FOLDER"
    )
    host: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port; 0: any free one.", default=8050, min=0, max=65535)
    most_runs: int = option("Runs that may go on at once.", default=2, min=1, max=64)
    show: bool = option("Open the page in a browser.", "--open/--no-open", default=True)
    token: bool = option(
        "Require the token that the printed address contains.", "--token/--no-token", default=True
    )
    ledger: list[str] | None = option(  # noqa: RUF009
        "URL of a ledger on a server that may be read; again for more."
    )


@command(
    app, "negotiate", "negotiate --preset paper --mechanism dypp --contracts contracts.csv",
    takes="scenario preset settings mechanism budget target_accuracy seed contracts out overwrite "
    "workers json",
)  # fmt: skip
@dataclass(frozen=True)
class NegotiateOptions(Request):
    """Play the pricing game and compare the result with the exact equilibrium."""

    contracts: str | None = option("Also write the contracts to this CSV file.", metavar="FILE")


@command(
    app, "compare", "compare --mechanisms clock,dypp,pain_fl,uniform --set owners=50",
    takes="scenario preset settings mechanisms seeds budgets game_only seed out overwrite resume "
    "workers json",
)  # fmt: skip
@dataclass(frozen=True)
class CompareOptions(Request):
    """Compare mechanisms on the same owners, data and seeds, through to the trained model."""

    mechanisms: str | None = option(
        f"Mechanisms to compare, separated by commas; by default all: {MECHANISMS}."
    )
    seeds: int | None = option("Seeds of owners, data and noise; by default 10.", min=1)
    budgets: str | None = option(
        "Budgets, separated by commas, or none; by default the scenario's, or 30,100,300."
    )
    game_only: bool = flag("--game-only", "Only what is agreed, on one seed: no training.")


@command(app, "reproduce", "reproduce --seeds 5 --out runs/reproduction")
@dataclass(frozen=True)
class ReproduceOptions:
    """Reproduce the paper's two convergence figures and check its claims one by one."""

    out: str = option("Folder for the page, figures and numbers.", default="runs/reproduction")
    page: str | None = option("File for the page; by default in the folder.")
    overwrite: Overwrite = False
    seeds: int = option("Seeds per learner and preset.", default=20, min=2)
    owners: int = option("Owners per seed.", default=100, min=1)
    iterations: int = option("Iterations per pair.", default=10_000, min=100)
    workers: Workers = None
    json: Json = False


@command(
    app, "train", "train --contracts contracts.csv --set rounds=10", "train --sigma 0.3",
    takes="scenario preset settings contracts sigma seed out overwrite resume workers json",
)  # fmt: skip
@dataclass(frozen=True)
class TrainOptions(Request):
    """Train on MNIST under given contracts and write a privacy statement per owner."""

    contracts: str | None = option("Contracts: a CSV file with owner and sigma.", metavar="FILE")
    sigma: float | None = option("The same noise scale for all owners.")


@command(
    app, "calibrate", "calibrate --sigmas 0,0.3,0.6 --seeds 3 --name mine",
    takes="scenario preset settings sigmas betas mixed seeds name seed out overwrite resume "
    "workers json",
)  # fmt: skip
@dataclass(frozen=True)
class CalibrateOptions(Request):
    """Measure accuracy over noise and non-IID data by training, and fit a loss surface."""

    sigmas: str | None = option("Noise scales, separated by commas; by default 0,0.1,...,0.6.")
    betas: str | None = option("Non-IID degrees, separated by commas; by default 0.1,1,10.")
    mixed: str | None = option(
        "Mixed contracts as share:sigma, separated by commas: that share of the owners "
        "has this noise, the others sigma_max. By default nine such pairs if the weighting is "
        "noise; none for none."
    )
    seeds: int | None = option("Runs per point; by default 1.")
    name: str | None = option("Name of the surface.")


@command(
    app, "audit", "audit --set protection=sharded",
    takes="scenario preset settings sigma trials confidence seed out overwrite json",
)  # fmt: skip
@dataclass(frozen=True)
class AuditOptions(Request):
    """Attack the protection that runs in training, and compare what leaks with what is claimed."""

    sigma: float | None = option("Noise scale to audit at; by default one at which bugs show best.")
    trials: int = option("Uploads per canary and arm.", default=1000)
    confidence: float = option("Least probability that a correct protection passes.", default=0.999)


@command(
    app, "privacy", "privacy --sigma 0.3", "privacy --epsilon 2 --set protection=clipped",
    takes="scenario preset settings sigma epsilon json",
)  # fmt: skip
@dataclass(frozen=True)
class PrivacyOptions(Request):
    """Show what noise costs in privacy, and which noise an epsilon needs."""

    sigma: float | None = option("Noise scale on the uploaded model: what it costs in privacy.")
    epsilon: float | None = option("Epsilon: which noise scale it needs.")


@command(
    app, "scenario", "scenario --preset paper > mine.toml", "scenario --explain",
    takes="scenario preset settings explain",
)  # fmt: skip
@dataclass(frozen=True)
class ScenarioOptions(Request):
    """Print a scenario with all its settings, ready to be edited and run."""

    explain: bool = flag("--explain", "List every key: value, what it may be, meaning.")
