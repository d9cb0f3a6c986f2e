"""The commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from noisemarket.cli.flower import flower_app
from noisemarket.cli.ledger import ledger_app
from noisemarket.cli.options import (
    MECHANISMS,
    Budget,
    Json,
    Ledgers,
    Mechanism,
    NeedToken,
    Out,
    Overwrite,
    Preset,
    Resume,
    RunsFolder,
    Runtime,
    ScenarioFile,
    Seed,
    Settings,
    Show,
    TargetAccuracy,
    Threads,
    Tls,
    Workers,
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
    context_settings={"help_option_names": ["-h", "--help"]},
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


@app.command(
    epilog=epilog(
        "run", "run mine.toml --set owners=20 --seed 7 --out runs/mine", "run --resume runs/mine"
    )
)
def run(
    scenario: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    mechanism: Mechanism = None,
    budget: Budget = None,
    target_accuracy: TargetAccuracy = None,
    seed: Seed = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's full setting: larger and slower.")
    ] = False,
    baselines: Annotated[
        bool | None,
        typer.Option(
            help="Also train, for comparison: no trade, DyPP, the best that full knowledge could "
            "buy, and no noise. By default with the bundled data or simulated noise only: a model "
            "without noise is not private."
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Draws of the noise that are compared; by default 3 for features, 1 for the CNN."
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="embedded (default), or flower: Flower processes on this machine."),
    ] = None,
    tls: Tls = True,
    runtime: Runtime = None,
    workers: Workers = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Run the whole market: negotiate, sign, train under contract, verify and pay."""
    from noisemarket.cli.common import Request
    from noisemarket.cli.run import run as market

    request = Request(
        scenario, preset, settings, seed, mechanism, threads, out, overwrite, json, budget,
        target_accuracy,
    )  # fmt: skip
    market(request, resume, workers, full, baselines, draws, engine, tls, runtime)


@app.command(epilog=epilog("dashboard runs --port 8080"))
def dashboard(
    runs: RunsFolder = "runs",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8050,
    most_runs: Annotated[int, typer.Option(min=1, max=64, help="Runs that may go on at once.")] = 2,
    show: Show = True,
    token: NeedToken = True,
    ledger: Ledgers = None,
) -> None:
    """Show runs in a browser: watch, start and compare them, and ask what if."""
    from noisemarket.cli.dashboard import ServerSettings, run

    run(runs, ServerSettings(host, port, most_runs, show, token, tuple(ledger or ())))


@app.command(epilog=epilog("negotiate --preset paper --mechanism dypp --contracts contracts.csv"))
def negotiate(
    scenario: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    mechanism: Mechanism = None,
    budget: Budget = None,
    target_accuracy: TargetAccuracy = None,
    seed: Seed = None,
    contracts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write the contracts to this CSV file.")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Play the pricing game and compare the result with the exact equilibrium."""
    from noisemarket.cli.common import Request
    from noisemarket.cli.negotiate import run

    request = Request(
        scenario, preset, settings, seed, mechanism, threads, out, overwrite, json, budget,
        target_accuracy,
    )  # fmt: skip
    run(request, contracts)


@app.command(epilog=epilog("compare --mechanisms clock,dypp,pain_fl,uniform --set owners=50"))
def compare(
    scenario: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    mechanisms: Annotated[
        str | None,
        typer.Option(
            "--mechanisms",
            "--learners",
            help=f"Mechanisms to compare, separated by commas; by default all: {MECHANISMS}.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of owners, data and noise; by default 10.")
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            help="Budgets, separated by commas, or none; by default the scenario's, or 30,100,300."
        ),
    ] = None,
    game_only: Annotated[
        bool, typer.Option("--game-only", help="Only what is agreed, on one seed: no training.")
    ] = False,
    seed: Seed = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    workers: Workers = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compare mechanisms on the same owners, data and seeds, through to the trained model."""
    from noisemarket.cli.common import Request

    request = Request(scenario, preset, settings, seed, None, threads, out, overwrite, json)
    if game_only:
        from noisemarket.cli.compare_game import run as game

        game(request, mechanisms, {"--seeds": seeds, "--budgets": budgets, "--resume": resume,
                                   "--workers": workers})  # fmt: skip
        return
    from noisemarket.cli.compare import CompareOptions, run

    run(request, CompareOptions(mechanisms, seeds, budgets, resume, workers))


@app.command(epilog=epilog("reproduce --seeds 5 --out runs/reproduction", scenario=False))
def reproduce(
    out: Annotated[str, typer.Option(help="Folder for the page, figures and numbers.")] = (
        "runs/reproduction"
    ),
    page: Annotated[
        str | None, typer.Option(help="File for the page; by default in the folder.")
    ] = None,
    overwrite: Overwrite = False,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds per learner and preset.")] = 20,
    owners: Annotated[int, typer.Option(min=1, help="Owners per seed.")] = 100,
    iterations: Annotated[int, typer.Option(min=100, help="Iterations per pair.")] = 10_000,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Reproduce the paper's two convergence figures and check its claims one by one."""
    from noisemarket.cli.reproduce import run

    run(out, page, overwrite, seeds, owners, iterations, threads, json)


@app.command(epilog=epilog("train --contracts contracts.csv --set rounds=10", "train --sigma 0.3"))
def train(
    scenario: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    contracts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Contracts: a CSV file with owner and sigma.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="The same noise scale for all owners.")
    ] = None,
    seed: Seed = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Train on MNIST under given contracts and write a privacy statement per owner."""
    from noisemarket.cli.common import Request
    from noisemarket.cli.train import run

    request = Request(scenario, preset, settings, seed, None, None, out, overwrite, json)
    run(request, contracts, sigma, resume, workers)


@app.command(epilog=epilog("calibrate --sigmas 0,0.3,0.6 --seeds 3 --name mine"))
def calibrate(
    scenario: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    sigmas: Annotated[
        str | None,
        typer.Option(help="Noise scales, separated by commas; by default 0,0.1,...,0.6."),
    ] = None,
    betas: Annotated[
        str | None, typer.Option(help="Non-IID degrees, separated by commas; by default 0.1,1,10.")
    ] = None,
    mixed: Annotated[
        str | None,
        typer.Option(
            help="Mixed contracts as share:sigma, separated by commas: that share of the owners "
            "has this noise, the others sigma_max. By default nine such pairs if the weighting is "
            "noise; none for none."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per point; by default 1.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the surface.")] = None,
    seed: Seed = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    fit_only: Annotated[
        bool, typer.Option("--fit-only", help="With --resume: only fit again, without measuring.")
    ] = False,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Measure accuracy over noise and non-IID data by training, and fit a loss surface."""
    from noisemarket.cli.calibrate import CalibrateOptions, run
    from noisemarket.cli.common import Request

    request = Request(scenario, preset, settings, seed, None, None, out, overwrite, json)
    run(request, CalibrateOptions(sigmas, betas, mixed, seeds, name, resume, fit_only, workers))


@app.command(epilog=epilog("audit --set protection=sharded --controls"))
def audit(
    scenario: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise scale to audit at; by default one at which bugs show best."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Uploads per canary and arm; by default 1000, with --controls 400."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Least probability that a correct protection passes.")
    ] = 0.999,
    bug: Annotated[
        str | None, typer.Option(metavar="NAME", help="Audit the protection with this seeded bug.")
    ] = None,
    controls: Annotated[
        bool,
        typer.Option("--controls", help="Audit every seeded bug, to see whether each is found."),
    ] = False,
    seed: Seed = None,
    out: Out = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Attack the protection that runs in training, and compare what leaks with what is claimed."""
    from noisemarket.cli.audit import AuditOptions, run
    from noisemarket.cli.common import Request

    request = Request(scenario, preset, settings, seed, None, None, out, overwrite, json)
    raise typer.Exit(run(request, AuditOptions(sigma, trials, confidence, bug, controls)))


@app.command(epilog=epilog("privacy --sigma 0.3 --rounds 30", scenario=False))
def privacy(
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise scale on the uploaded model: what it costs in privacy."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Epsilon: which noise scale it needs.")
    ] = None,
    protection: Annotated[
        str, typer.Option(help="sharded, dp_sgd, clipped, paper, or one of another package.")
    ] = "sharded",
    neighbours: Annotated[str, typer.Option(help="replace_one or zero_out.")] = "replace_one",
    rounds: Annotated[int, typer.Option(help="Uploads of one owner.")] = 30,
    delta: Annotated[float, typer.Option(help="Between 0 and 1.")] = 1e-5,
    clip: Annotated[
        float, typer.Option(help="Norm to which an update or gradient is clipped.")
    ] = 1.0,
    shards: Annotated[
        int | None,
        typer.Option(help="sharded: number of shards, 64; 1 hides all data of an owner."),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="dp_sgd: records in a batch, 64.")] = None,
    steps: Annotated[int | None, typer.Option(help="dp_sgd: batches in a round, 10.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="dp_sgd: step size, 0.05.")] = None,
    parameters: Annotated[
        int, typer.Option(help="Number of model parameters, to include the rounding of the noise.")
    ] = 0,
    json: Json = False,
) -> None:
    """Show what noise costs in privacy, and which noise an epsilon needs."""
    from noisemarket.cli.privacy import Question, run

    question = Question(
        sigma=sigma,
        epsilon=epsilon,
        protection=protection,
        neighbours=neighbours,
        rounds=rounds,
        delta=delta,
        clip=clip,
        shards=shards,
        batch=batch,
        steps=steps,
        learning_rate=learning_rate,
        parameters=parameters,
    )
    run(question, json)


@app.command(epilog=epilog("scenario --preset paper > mine.toml", "scenario --explain"))
def scenario(
    file: ScenarioFile = None,
    preset: Preset = None,
    settings: Settings = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="List every key: value, what it may be, meaning."),
    ] = False,
) -> None:
    """Print a scenario with all its settings, ready to be edited and run."""
    from noisemarket.cli.scenario import explain_keys, print_scenario

    if explain:
        explain_keys(file, preset, settings)
    else:
        print_scenario(file, preset, settings)
