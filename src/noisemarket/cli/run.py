"""``noisemarket run``: the whole market."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import (
    ROUND_DROPPED,
    Stop,
    load,
    new_folder,
    paths,
    progress,
    resumed,
    show,
    step_done,
    stoppable,
    with_surface,
)
from noisemarket.cli.estimate import announce
from noisemarket.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from noisemarket.federated.rounds import RoundResult
    from noisemarket.market.baselines import Alternative, Draw
    from noisemarket.market.orders import PreparedMarket
    from noisemarket.market.outcome import MarketOutcome
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.market.summary import Compared
    from noisemarket.pricing.mechanism import Progress
    from noisemarket.scenario import Scenario

EMBEDDED, FLOWER = "embedded", "flower"

SEASON = "season.json"
"""What marks the folder of a season: its jobs so far."""

DRAWS = {"features": 2, "cnn": 1}
"""Draws of the noise that are compared by default."""

Choices = dict[str, Any]
"""Engine, draws and baselines. Every status has them, so that a resumed run goes on with them."""

_NOT_COMPARED = (
    "Baselines skipped: a noise-free model would leak your records. Pass --baselines to train them."
)
_PUBLIC = "One baseline is trained without noise: the bundled {name} is public."


def run(
    context: typer.Context,
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    mechanism: opt.Mechanism = None,
    budget: opt.Budget = None,
    target_accuracy: opt.TargetAccuracy = None,
    seed: opt.Seed = None,
    out: opt.Out = None,
    overwrite: opt.Overwrite = False,
    resume: opt.Resume = None,
    baselines: Annotated[
        bool | None,
        Option(
            help="Also train, for comparison: no trade, the clock auction (or DyPP), the best that "
            "full knowledge could buy, and no noise. By default with the bundled data or simulated "
            "noise only: a model without noise is not private."
        ),
    ] = None,
    draws: Annotated[
        int | None,
        Option(
            min=1,
            help="Draws of the noise that are compared; by default 2 for features, 1 for the CNN.",
        ),
    ] = None,
    engine: Annotated[
        str | None, Option(help="embedded (default), or flower: Flower's simulation.")
    ] = None,
    owners_folder: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Owners that outlive the run: keys, private numbers, wallets, and one ledger of "
            "all jobs. Without it owners are simulated and thrown away.",
        ),
    ] = None,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Run the whole market: negotiate, sign, train under contract, verify and pay."""
    given = {"engine": engine, "draws": draws, "baselines": baselines}
    if owners_folder is not None:
        given["owners_folder"] = str(lasting_folder(owners_folder))
    if resume is None:
        scenario = load(
            file, preset, settings, seed,
            mechanism=mechanism, budget=budget, target_accuracy=target_accuracy,
        )  # fmt: skip
        if scenario.jobs:
            from noisemarket.cli.season import start_season

            start_season(scenario, given, out, overwrite, file, workers, as_json)
            return
        _check_budget(scenario, given)
        folder, market, choices = start(scenario, given, out, overwrite, file, workers)
    else:
        allowed = ("--engine", "--[no-]baselines", "--draws", "--workers")
        path = resumed(context, resume, "a run folder", ("scenario.toml", "status.json"), *allowed)
        season = path.resolve().parent.parent
        if (season / SEASON).exists():
            raise BadInput("--resume", resume, f"is one job of a season: resume {season}.")
        if (path / SEASON).exists():
            from noisemarket.cli.season import resume_season

            resume_season(path, workers, as_json)
            return
        folder, market, choices = reopen(path, given)
    carry_out(folder, market, choices, workers, as_json, asked=baselines is not None)


def start(
    scenario: Scenario, given: Choices, out: str | None, overwrite: bool, file: str | None,
    workers: int | None,
) -> tuple[RunFolder, PreparedMarket, Choices]:  # fmt: skip
    """Check everything, find the job's loss surface, then open a new run folder."""
    from noisemarket.market.orders import check_asks, prepare
    from noisemarket.scenario.surface_file import find_surface

    market = prepare(scenario)
    if given["engine"] == FLOWER:
        from noisemarket.flower import need_flower

        need_flower()
        check_asks(scenario, market.environment)
    choices = chosen(scenario, given, {})
    scenario = with_surface(scenario, workers, out, overwrite)
    surface = find_surface(scenario.surface_name())
    environment = replace(market.environment, surface=surface)
    market = replace(market, scenario=scenario, environment=environment)
    folder = new_folder(scenario, "run", out, overwrite, file, **choices)
    announce(scenario, 1 + 4 * choices["draws"] if choices["baselines"] else 1, workers)
    return folder, market, choices


def reopen(path: Path, given: Choices) -> tuple[RunFolder, PreparedMarket, Choices]:
    """Go on with a run: its folder, its market and what it began with."""
    from noisemarket.market.orders import prepare
    from noisemarket.market.run_folder import JOB, SCENARIO, RunFolder, read_status
    from noisemarket.scenario import load_scenario

    noted = read_status(path)
    if noted.get("kind", "run") != "run":  # a run that is killed at its start has no status
        raise BadInput("--resume", str(path), "was written by another command.")
    scenario = load_scenario(path / SCENARIO)
    before = noted.get("engine", EMBEDDED)
    if given["engine"] not in (None, before) and (path / JOB).exists():
        remedy = f"the job started with {before}: continue with that."
        raise BadInput("--engine", given["engine"], remedy)
    choices, market = chosen(scenario, given, noted), prepare(scenario)
    return RunFolder.reopen(path, **choices), market, choices


def chosen(scenario: Scenario, given: Choices, noted: Mapping[str, Any]) -> Choices:
    """What is given, or what the run began with, or the default.

    Baselines are trained by default only where they tell nothing.
    """
    from noisemarket.market.baselines import harmless

    baselines, draws = given["baselines"], noted.get("draws")
    if type(draws) is not int or draws < 1:  # none is noted, or the status is damaged
        draws = DRAWS[scenario.training.model]
    engine = given["engine"] or noted.get("engine", EMBEDDED)
    if engine not in (EMBEDDED, FLOWER):
        raise BadInput("--engine", engine, f"choose {EMBEDDED} or {FLOWER}.")
    if engine == FLOWER:
        from noisemarket.flower import need_flower

        need_flower(simulation=True)
    if baselines is None:
        baselines = noted.get("baselines", harmless(scenario))
    chosen = {"engine": engine, "draws": given["draws"] or draws, "baselines": baselines}
    owners = given.get("owners_folder", noted.get("owners_folder"))
    return chosen if owners is None else {**chosen, "owners_folder": str(owners)}


def _check_budget(scenario: Scenario, given: Choices) -> None:
    """Refuse a budget for all jobs of owners that are thrown away after this one."""
    if given.get("owners_folder") is not None:
        return
    for name in ("rho_budget", "epsilon_budget"):
        if value := getattr(scenario.privacy, name):
            remedy = "it is kept in owners' wallets, over all jobs: add --owners-folder, or give "
            remedy += f"{name.replace('budget', 'cap')} for this job alone."
            raise BadInput(f"privacy.{name}", f"{value:g}", remedy)


def lasting_folder(path: str) -> Path:
    """A folder for owners that outlive a run: a new one, or one that holds nothing else."""
    folder = Path(path).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadInput("--owners-folder", path, "is a file: name a folder.")
    found = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    if found and not any(name.startswith("owner-") for name in found):
        raise BadInput("--owners-folder", path, "holds something else: name a new folder.")
    return folder


def carry_out(
    folder: RunFolder,
    market: PreparedMarket,
    choices: Choices,
    workers: int | None,
    as_json: bool,
    *,
    asked: bool,
) -> None:
    """Run the market and its baselines, write the results and print them.

    ``asked``: the user said whether there are to be baselines.
    """
    from noisemarket.federated.data_files import PUBLIC
    from noisemarket.market.baselines import harmless
    from noisemarket.show import market_report as report

    outcome, result, others, figures = complete(folder, market, choices, workers)
    said, data = list[str](), market.order.job.data
    if not others and not asked and not harmless(market.scenario):
        said.append(_NOT_COMPARED)
    elif others and market.scenario.training.data in PUBLIC:
        said.append(_PUBLIC.format(name=data.name))
    said += _whose(choices, folder, outcome)
    said += [f"Owner {owner} broke its contract: {why}." for owner, why in outcome.broken.items()]
    said += report.harmful_uploads(outcome)
    said += [
        *paths(folder, figures),
        f"Ledger head: {outcome.head}",
        f"To see the contracts: noisemarket ledger ls {folder.path}",
    ]
    if (target := market.scenario.market.target_accuracy) != "none":
        said.insert(0, against(float(target), result["accuracies"]["market"]))
    if not outcome.agreed:
        said.insert(0, _why_nothing(outcome))
    said += report.within_draws(result)
    if better := report.advice(result):
        said.append(better)
    tables = [report.alternatives_table(result)] if others else []
    tables += [report.market_table(result), report.sellers_table(outcome)]
    show(as_json, result, *tables, *said)


def complete(
    folder: RunFolder,
    market: PreparedMarket,
    choices: Choices,
    workers: int | None,
    whole: Path | None = None,
) -> tuple[MarketOutcome, dict[str, Any], list[Alternative], list[Path]]:
    """Run the market and its baselines, and write the results: outcome, summary, alternatives and
    figures. ``whole`` is the folder to resume, if it is another one."""
    from noisemarket.market.baselines import alternatives
    from noisemarket.market.summary import owners_csv, summary
    from noisemarket.show import market_report as report
    from noisemarket.show.negotiation_report import write_policies

    with folder, stoppable(ROUND_DROPPED) as stop, progress("") as bar:
        compared: Compared = {}
        others: list[Alternative] = []
        try:
            outcome = _market(choices, market, folder.path, workers, stop, bar)
            if choices["baselines"]:
                others = alternatives(outcome, workers)
                compared = _baselines(folder, outcome, others, choices["draws"], workers, stop, bar)
        except Interrupted as problem:
            folder.status("incomplete", problem=str(problem))
            rest = str(problem).rstrip(".")
            path = whole or folder.path
            raise Interrupted(f"{rest}; continue with --resume {path}.") from None
        result = summary(outcome, market.environment, compared, others)
        folder.write_json("summary.json", result)
        folder.write_text("contracts.csv", owners_csv(outcome))
        write_policies(folder, outcome.negotiation.agreement)
        figures = report.draw_market(folder, outcome, compared, others)
        folder.status("complete", rounds=result["rounds"], secure_noise=result["secure_noise"])
    if whole and stop():  # too late for this job, not for the next
        raise Interrupted(f"stopped after a job; continue with --resume {whole}.")
    return outcome, result, others, figures


def _whose(choices: Choices, folder: RunFolder, outcome: MarketOutcome) -> list[str]:
    """Whether the owners outlive the run, what limited them, and what they have left."""
    if (root := choices.get("owners_folder")) is None:
        return [
            "This run acts for the owners, and throws their keys away: --owners-folder keeps them."
        ]
    from noisemarket.market.lasting import budgets_said
    from noisemarket.market.run_folder import MarketFolder
    from noisemarket.show.account_report import write_accounts

    said = budgets_said(outcome, MarketFolder(folder.path), Path(root))
    return said + write_accounts(folder, Path(root))


def _why_nothing(outcome: MarketOutcome) -> str:
    """Why no owner sold anything."""
    budget = outcome.negotiation.scenario.market.budget
    if outcome.over_budget:
        money = f"{budget:g} {outcome.currency}"
        return f"The budget of {money} pays for none of {outcome.over_budget:,} deals."
    return outcome.negotiation.why_nothing()


def against(target: float, draws: Sequence[float | None]) -> str:
    """The accuracy that was asked for, beside the one that came: the first of these draws of the
    noise."""
    accuracy = draws[0]
    if accuracy is None:
        return f"Whether the target of {target:g} % is met is not known: no round was trained."
    if accuracy >= target:
        return f"The target of {target:g} % is met: {accuracy:.2f} %."
    missed = f"The target of {target:g} % is missed by {target - accuracy:.2f} points"
    found = [one for one in draws if one is not None]
    if target - accuracy > max(found) - min(found):
        return f"{missed}."
    return (
        f"{missed}: the loss surface predicts the mean of many draws of the noise, and this is one."
    )


def _market(
    choices: Choices,
    market: PreparedMarket,
    folder: Path,
    workers: int | None,
    stop: Stop,
    bar: Bar,
) -> MarketOutcome:
    """Run the market, with a progress bar for each of its steps."""
    from noisemarket.market import events, job

    owners = market.scenario.population.owners
    talk = bar.add_task("negotiating", total=owners)
    sign = bar.add_task("signing", total=owners, visible=False)
    rounds = bar.add_task("training", total=market.scenario.training.rounds, visible=False)

    def watch(seen: Progress) -> None:
        bar.update(talk, completed=seen.done, total=seen.total)

    root = choices.get("owners_folder")
    lasting = {} if root is None else {"owners": Path(root), "renew": choices.get("renew", False)}
    if choices["engine"] == FLOWER:
        from noisemarket.flower.simulation import run_simulation

        run = run_simulation(market, folder, workers=workers, watch=watch, stop=stop, **lasting)
    else:
        run = job.run_market(
            market, folder, workers=workers, threads=workers, watch=watch, stop=stop, **lasting
        )
    signed, trained = 0, ""
    for event in run:
        if isinstance(event, events.Negotiated):
            step_done(bar, f"Negotiated: {event.agreed:,} of {event.owners:,} owners sell noise.")
        elif isinstance(event, events.Signed):
            signed += 1
            bar.update(sign, completed=signed, visible=True)
        elif isinstance(event, events.RoundTrained):
            trained = f": {_accuracy(event.result)}"
            words = f"training, {_accuracy(event.result)}"
            bar.update(rounds, completed=event.result.number, description=words, visible=True)
        elif isinstance(event, events.Settled):
            step_done(bar, f"Trained under {signed:,} contracts{trained}.")
            step_done(bar, f"Settled: {event.paid:,} contracts kept, {event.broken:,} broken.")
        elif isinstance(event, events.Accused):
            words = f"Owner {event.owner}, round {event.round}: {event.reason}; refused."
            bar.console.print(words, markup=False)
        elif isinstance(event, events.LeftOut):
            bar.console.print(f"Owner {event.owner} is left out: {event.reason}.", markup=False)
    return run.outcome


def _accuracy(result: RoundResult) -> str:
    return f"accuracy {(result.averaged or result.score).accuracy:.1f} %"


def _baselines(
    folder: RunFolder,
    outcome: MarketOutcome,
    others: Sequence[Alternative],
    draws: int,
    workers: int | None,
    stop: Stop,
    bar: Bar,
) -> Compared:
    """Train the market's alternatives, each with all draws of the noise."""
    from noisemarket.market import baselines
    from noisemarket.show.style import name_of

    rounds, tasks = outcome.negotiation.scenario.training.rounds, baselines.draws_of(others, draws)
    lines: dict[str, tuple[str, TaskID]] = {}
    for name, mechanism in {one.name: one.mechanism for one in others}.items():
        if count := sum(task.name == name for task in tasks):
            same = name == baselines.MARKET
            words = "the same contracts again" if same else name_of(mechanism or name)
            lines[name] = words, bar.add_task(words, total=rounds * count)
    several = {task.name for task in tasks if task.draw > 1}

    def told(task: Draw, result: RoundResult) -> None:
        words, line = lines[task.name]
        bar.update(line, advance=1, description=f"{words}, {_accuracy(result)}")
        if result.number == rounds:
            which = f", draw {task.draw} of {draws}" if task.name in several else ""
            step_done(bar, f"Trained for comparison: {words}{which}, {_accuracy(result)}.")

    try:
        return baselines.train_baselines(folder, outcome, tasks, told, workers, stop)
    except Interrupted:
        words = "the market is settled; stopped while training the baselines."
        raise Interrupted(words) from None
