"""The commands and their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from noisemarket.cli.flower import flower_app
from noisemarket.cli.ledger import ledger_app
from noisemarket.cli.options import (
    HELP,
    MECHANISMS,
    Json,
    Overwrite,
    Request,
    RunOptions,
    Threads,
    command,
    epilog,
)
from noisemarket.cli.owner_standing import owner_app

app = typer.Typer(
    name="noisemarket",
    help="A market in which data owners of a federated-learning job sell part of their "
    "differential-privacy noise to the curator, by contract.",
    epilog=epilog("run", "run --set owners=20 --out runs/mine", "run --help", scenario=False),
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)

app.add_typer(ledger_app, name="ledger")
app.add_typer(flower_app, name="flower")
app.add_typer(owner_app, name="owner")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
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
    "full baselines draws engine tls runtime workers threads json",
)(RunOptions)  # fmt: skip


@command(app, "dashboard", "dashboard runs --port 8080")
@dataclass(frozen=True)
class DashboardOptions:
    """Show runs in a browser: watch, start and compare them, and ask what if."""

    runs: Annotated[
        str, typer.Argument(metavar="RUNS_FOLDER", help="Folder that holds run folders.")
    ] = "runs"
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8050
    most_runs: Annotated[int, typer.Option(min=1, max=64, help="Runs that may go on at once.")] = 2
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = (
        True
    )
    token: Annotated[
        bool,
        typer.Option("--token/--no-token", help="Let in only who has the token of the address."),
    ] = True
    ledger: Annotated[
        list[str] | None,
        typer.Option(help="URL of a ledger on a server that may be read; again for more."),
    ] = None


@command(
    app, "negotiate", "negotiate --preset paper --mechanism dypp --contracts contracts.csv",
    takes="scenario preset settings mechanism budget target_accuracy seed contracts out overwrite "
    "threads json",
)  # fmt: skip
@dataclass(frozen=True)
class NegotiateOptions(Request):
    """Play the pricing game and compare the result with the exact equilibrium."""

    contracts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write the contracts to this CSV file.")
    ] = None


@command(
    app, "compare", "compare --mechanisms clock,dypp,pain_fl,uniform --set owners=50",
    takes="scenario preset settings mechanisms seeds budgets game_only seed out overwrite resume "
    "workers threads json",
)  # fmt: skip
@dataclass(frozen=True)
class CompareOptions(Request):
    """Compare mechanisms on the same owners, data and seeds, through to the trained model."""

    mechanisms: Annotated[
        str | None,
        typer.Option(
            "--mechanisms",
            "--learners",
            help=f"Mechanisms to compare, separated by commas; by default all: {MECHANISMS}.",
        ),
    ] = None
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of owners, data and noise; by default 10.")
    ] = None
    budgets: Annotated[
        str | None,
        typer.Option(
            help="Budgets, separated by commas, or none; by default the scenario's, or 30,100,300."
        ),
    ] = None
    game_only: Annotated[
        bool, typer.Option("--game-only", help="Only what is agreed, on one seed: no training.")
    ] = False


@command(app, "reproduce", "reproduce --seeds 5 --out runs/reproduction")
@dataclass(frozen=True)
class ReproduceOptions:
    """Reproduce the paper's two convergence figures and check its claims one by one."""

    out: Annotated[str, typer.Option(help="Folder for the page, figures and numbers.")] = (
        "runs/reproduction"
    )
    page: Annotated[
        str | None, typer.Option(help="File for the page; by default in the folder.")
    ] = None
    overwrite: Overwrite = False
    seeds: Annotated[int, typer.Option(min=2, help="Seeds per learner and preset.")] = 20
    owners: Annotated[int, typer.Option(min=1, help="Owners per seed.")] = 100
    iterations: Annotated[int, typer.Option(min=100, help="Iterations per pair.")] = 10_000
    threads: Threads = None
    json: Json = False


@command(
    app, "train", "train --contracts contracts.csv --set rounds=10", "train --sigma 0.3",
    takes="scenario preset settings contracts sigma seed out overwrite resume workers json",
)  # fmt: skip
@dataclass(frozen=True)
class TrainOptions(Request):
    """Train on MNIST under given contracts and write a privacy statement per owner."""

    contracts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Contracts: a CSV file with owner and sigma.")
    ] = None
    sigma: Annotated[float | None, typer.Option(help="The same noise scale for all owners.")] = None


@command(
    app, "calibrate", "calibrate --sigmas 0,0.3,0.6 --seeds 3 --name mine",
    takes="scenario preset settings sigmas betas mixed seeds name seed out overwrite resume "
    "fit_only workers json",
)  # fmt: skip
@dataclass(frozen=True)
class CalibrateOptions(Request):
    """Measure accuracy over noise and non-IID data by training, and fit a loss surface."""

    sigmas: Annotated[
        str | None,
        typer.Option(help="Noise scales, separated by commas; by default 0,0.1,...,0.6."),
    ] = None
    betas: Annotated[
        str | None, typer.Option(help="Non-IID degrees, separated by commas; by default 0.1,1,10.")
    ] = None
    mixed: Annotated[
        str | None,
        typer.Option(
            help="Mixed contracts as share:sigma, separated by commas: that share of the owners "
            "has this noise, the others sigma_max. By default nine such pairs if the weighting is "
            "noise; none for none."
        ),
    ] = None
    seeds: Annotated[int | None, typer.Option(help="Runs per point; by default 1.")] = None
    name: Annotated[str | None, typer.Option(help="Name of the surface.")] = None
    fit_only: Annotated[
        bool, typer.Option("--fit-only", help="With --resume: only fit again, without measuring.")
    ] = False


@command(
    app, "audit", "audit --set protection=sharded --controls",
    takes="scenario preset settings sigma trials confidence bug controls seed out overwrite json",
)  # fmt: skip
@dataclass(frozen=True)
class AuditOptions(Request):
    """Attack the protection that runs in training, and compare what leaks with what is claimed."""

    sigma: Annotated[
        float | None,
        typer.Option(help="Noise scale to audit at; by default one at which bugs show best."),
    ] = None
    trials: Annotated[
        int | None,
        typer.Option(help="Uploads per canary and arm; by default 1000, with --controls 400."),
    ] = None
    confidence: Annotated[
        float, typer.Option(help="Least probability that a correct protection passes.")
    ] = 0.999
    bug: Annotated[
        str | None, typer.Option(metavar="NAME", help="Audit the protection with this seeded bug.")
    ] = None
    controls: Annotated[
        bool,
        typer.Option("--controls", help="Audit every seeded bug, to see whether each is found."),
    ] = False


@command(app, "privacy", "privacy --sigma 0.3 --rounds 30")
@dataclass(frozen=True)
class PrivacyOptions:
    """Show what noise costs in privacy, and which noise an epsilon needs."""

    sigma: Annotated[
        float | None,
        typer.Option(help="Noise scale on the uploaded model: what it costs in privacy."),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="Epsilon: which noise scale it needs.")] = (
        None
    )
    protection: Annotated[
        str, typer.Option(help="sharded, dp_sgd, clipped, paper, or one of another package.")
    ] = "sharded"
    neighbours: Annotated[str, typer.Option(help="replace_one or zero_out.")] = "replace_one"
    rounds: Annotated[int, typer.Option(help="Uploads of one owner.")] = 30
    delta: Annotated[float, typer.Option(help="Between 0 and 1.")] = 1e-5
    clip: Annotated[float, typer.Option(help="Norm to which an update or gradient is clipped.")] = (
        1.0
    )
    shards: Annotated[
        int | None,
        typer.Option(help="sharded: number of shards, 64; 1 hides all data of an owner."),
    ] = None
    batch: Annotated[int | None, typer.Option(help="dp_sgd: records in a batch, 64.")] = None
    steps: Annotated[int | None, typer.Option(help="dp_sgd: batches in a round, 10.")] = None
    learning_rate: Annotated[float | None, typer.Option(help="dp_sgd: step size, 0.05.")] = None
    parameters: Annotated[
        int, typer.Option(help="Number of model parameters, to include the rounding of the noise.")
    ] = 0
    json: Json = False


@command(
    app, "scenario", "scenario --preset paper > mine.toml", "scenario --explain",
    takes="scenario preset settings explain",
)  # fmt: skip
@dataclass(frozen=True)
class ScenarioOptions(Request):
    """Print a scenario with all its settings, ready to be edited and run."""

    explain: Annotated[
        bool,
        typer.Option("--explain", help="List every key: value, what it may be, meaning."),
    ] = False
