"""``noisemarket run``: the whole market."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bar
from rich.progress import TaskID

from noisemarket.cli.common import ROUND_DROPPED, Stop, paths, progress, show, stoppable
from noisemarket.cli.options import EMBEDDED, FLOWER, SURFACE, MarketOptions
from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.rounds import RoundResult
from noisemarket.files import private_folder
from noisemarket.market.baselines import (
    BASELINES,
    MARKET,
    NO_DP,
    Alternative,
    BaselineWork,
    Draw,
    alternatives,
    harmless,
    plan_line,
    round_line,
)
from noisemarket.market.events import Accused, LeftOut, RoundTrained, Signed
from noisemarket.market.job import run_market
from noisemarket.market.orders import PreparedMarket, check_asks, prepare
from noisemarket.market.outcome import MarketOutcome, MarketRun
from noisemarket.market.run_folder import JOB, SCENARIO, STATUS, RunFolder, read_status
from noisemarket.market.summary import Compared, owners_csv, summary
from noisemarket.market.worker_processes import in_processes, one_by_one
from noisemarket.pricing.mechanism import Progress
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.show.market_report import (
    alternatives_table,
    draw_market,
    head_of,
    market_table,
    sellers_table,
)
from noisemarket.show.negotiation_report import write_policies

DRAWS = {"features": 3, "cnn": 1}
"""Draws of the noise that are compared by default."""

CONTRACTS = "contracts.csv"

_FIRST_FILES = {SCENARIO, STATUS, SURFACE, "owners.csv", "owners.toml", "curator", "owners"}
"""The files that a run can leave if it is killed before its job is opened."""

_NOT_COMPARED = (
    "Baselines skipped: a noise-free model would leak your records. Pass --baselines to train them."
)
_PUBLIC = "One baseline is trained without noise: the bundled MNIST is public."


def run(options: MarketOptions) -> None:
    """Run the command."""
    folder, market, chosen = _start(options) if options.resume is None else _reopen(options)
    scenario = market.scenario
    with folder, stoppable(ROUND_DROPPED) as stop, progress("") as bar:
        compared, others = Compared(), list[Alternative]()
        try:
            outcome = _market(chosen, market, folder.path, stop, bar)
            if chosen.baselines:
                others = alternatives(outcome, options.workers)
                compared = _baselines(folder, outcome, others, chosen, stop, bar)
        except Interrupted as problem:
            folder.status("incomplete", problem=str(problem))
            rest = str(problem).rstrip(".")
            raise Interrupted(f"{rest}; continue with --resume {folder.path}.") from None
        result = summary(outcome, market.environment, compared, others)
        folder.write_json("summary.json", result)
        folder.write_text(CONTRACTS, owners_csv(outcome))
        write_policies(folder, outcome.negotiation.agreement)
        figures = draw_market(folder, outcome, compared, others)
        folder.status("complete", rounds=result["rounds"], secure_noise=result["secure_noise"])
    said = []
    if not others and options.baselines is None and not harmless(scenario):
        said.append(_NOT_COMPARED)
    elif others and not scenario.training.data:
        said.append(_PUBLIC)
    said += [f"Owner {owner} broke its contract: {why}." for owner, why in outcome.broken.items()]
    said += [
        *paths(folder, figures),
        f"Ledger head: {outcome.head}",
        f"To see the contracts: noisemarket ledger ls {folder.path}",
    ]
    tables = [alternatives_table(result)] if others else []
    show(options.json, result, *tables, market_table(result), sellers_table(outcome), *said)


def _start(options: MarketOptions) -> tuple[RunFolder, PreparedMarket, MarketOptions]:
    scenario = options.load()
    market = prepare(scenario)  # before anything is written
    if options.engine == FLOWER:
        from noisemarket.flower import need_flower

        need_flower()
        check_asks(scenario, market.environment)
    chosen = _chosen(options, scenario, {})
    return options.folder(scenario, "run", **_facts(chosen)), market, chosen


def _reopen(options: MarketOptions) -> tuple[RunFolder, PreparedMarket, MarketOptions]:
    allowed = "--engine, --[no-]baselines, --draws, --workers and --json"
    path = options.resumed("a run folder", (SCENARIO, STATUS), allowed)
    others = {one.name for one in path.iterdir() if not one.name.startswith(".")} - _FIRST_FILES
    if others and not (path / JOB).exists():
        raise BadInput("--resume", options.resume, "was written by another command.")
    scenario = load_scenario(path / SCENARIO)
    noted = read_status(path)
    before = noted.get("engine", EMBEDDED)
    if options.engine not in (None, before) and (path / JOB).exists():
        remedy = f"the job started with {before}: continue with that."
        raise BadInput("--engine", options.engine, remedy)
    chosen, market = _chosen(options, scenario, noted), prepare(scenario)
    return RunFolder.reopen(path, **_facts(chosen)), market, chosen


def _chosen(options: MarketOptions, scenario: Scenario, noted: Mapping[str, Any]) -> MarketOptions:
    """The options with, where one is not given, what the run began with, or else the default.

    Baselines are trained by default only where they tell nothing.
    """
    baselines, draws = options.baselines, noted.get("draws")
    if type(draws) is not int or draws < 1:  # none is noted, or the status is damaged
        draws = DRAWS[scenario.training.model]
    engine = options.engine or noted.get("engine", EMBEDDED)
    if engine not in (EMBEDDED, FLOWER):
        raise BadInput("--engine", engine, f"choose {EMBEDDED} or {FLOWER}.")
    if engine == FLOWER:
        from noisemarket.flower import need_flower

        need_flower(simulation=True)
    return replace(
        options,
        engine=engine,
        draws=options.draws or draws,
        baselines=noted.get("baselines", harmless(scenario)) if baselines is None else baselines,
    )


def _facts(chosen: MarketOptions) -> dict[str, object]:
    """What every status says, so that a resumed run goes on with it."""
    return {"engine": chosen.engine, "draws": chosen.draws, "baselines": chosen.baselines}


def _market(
    chosen: MarketOptions, market: PreparedMarket, folder: Path, stop: Stop, bar: Bar
) -> MarketOutcome:
    """Run the market, with a progress bar for each of its steps."""
    owners = market.scenario.population.owners
    talk = bar.add_task("negotiating", total=owners)
    sign = bar.add_task("signing", total=owners, visible=False)
    rounds = bar.add_task("training", total=market.scenario.training.rounds, visible=False)

    def watch(seen: Progress) -> None:
        bar.update(talk, completed=seen.done, total=seen.total)

    run: MarketRun
    if chosen.engine == FLOWER:
        from noisemarket.flower.simulation import run_simulation

        run = run_simulation(market, folder, workers=chosen.workers, watch=watch, stop=stop)
    else:
        run = run_market(
            market, folder, workers=chosen.workers, threads=chosen.workers, watch=watch, stop=stop
        )
    for event in run:
        if isinstance(event, Signed):
            bar.update(sign, advance=1, visible=True)
        elif isinstance(event, RoundTrained):
            bar.update(rounds, completed=event.result.number - 1)
            _round("training", event.result, event.rounds, bar, rounds)
        elif isinstance(event, Accused):
            words = f"Owner {event.owner}, round {event.round}: {event.reason}; refused."
            bar.console.print(words, markup=False)
        elif isinstance(event, LeftOut):
            bar.console.print(f"Owner {event.owner} is left out: {event.reason}.", markup=False)
    return run.outcome


def _round(name: str, result: RoundResult, rounds: int, bar: Bar, line: TaskID) -> None:
    """Show that one more round is done."""
    words = f"{name}, accuracy {(result.averaged or result.score).accuracy:.1f} %"
    bar.update(line, advance=1, description=words, visible=True)
    if bar.disable:
        print(f"{words}, round {result.number} of {rounds}", file=sys.stderr, flush=True)


def _baselines(
    folder: RunFolder,
    outcome: MarketOutcome,
    others: Sequence[Alternative],
    chosen: MarketOptions,
    stop: Stop,
    bar: Bar,
) -> Compared:
    """Train what the market is compared with; without noise there is nothing to draw anew.

    A linear model trains in one process and all of them at once; a network one after another.
    """
    draws, workers = chosen.draws, chosen.workers
    assert draws is not None
    scenario, path = outcome.negotiation.scenario, folder.path / "baselines"
    rounds, tasks, lines = scenario.training.rounds, list[Draw](), dict[str, tuple[str, TaskID]]()
    for one in others:
        first, last = 2 if one.name == MARKET else 1, 1 if one.name == NO_DP else draws
        if last < first or one.same_as is not None:
            continue
        words = (
            "the same contracts again" if one.name == MARKET else head_of(one.name, one.mechanism)
        )
        lines[one.name] = words, bar.add_task(words, total=rounds * (last - first + 1))
        tasks += [Draw(one.name, one.sigma, draw) for draw in range(first, last + 1)]

    def told(task: Draw, result: RoundResult) -> None:
        words, line = lines[task.name]
        words = f"for comparison, {words}" + (f" ({task.draw})" if draws > 1 else "")
        _round(words, result, rounds, bar, line)
        folder.append(BASELINES, round_line(task.name, task.draw, result), private=True)

    private_folder(path)
    folder.append(BASELINES, plan_line(rounds * len(tasks)), private=True)
    if scenario.training.model == "features":
        work = BaselineWork(scenario, outcome.order, path)
        trained = in_processes(work, tasks, told, workers=workers, stop=stop)
    else:
        own = BaselineWork(
            scenario, outcome.order, path, serial=False, workers=workers, stop=stop
        )  # fmt: skip
        trained = one_by_one(own, tasks, told)
    try:
        done = {(task.name, task.draw): result for task, result in trained}
    except Interrupted:
        words = "the market is settled; stopped while training the baselines."
        raise Interrupted(words) from None
    out = Compared()
    for task in tasks:
        out.setdefault(task.name, []).append(done[task.name, task.draw])
    return out
