"""``noisemarket compare``: the mechanisms on the same owners, data and seeds, up to the model."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisemarket.cli.common import (
    Request,
    Stop,
    at_least_one,
    console,
    keep_scenario,
    names_of,
    print_paths,
    progress,
    stoppable,
)
from noisemarket.comparison.campaign import Campaign, Plan
from noisemarket.comparison.decisions import as_compared
from noisemarket.comparison.growth import Timing, timings
from noisemarket.comparison.results import (
    AVERAGED,
    Row,
    means,
    paired_differences,
    same_contracts,
)
from noisemarket.comparison.trainings import line_of, read_trained
from noisemarket.csv_text import csv_text
from noisemarket.errors import BadInput, Interrupted
from noisemarket.machine import Effort
from noisemarket.market.preparation import check_weighting, prepare
from noisemarket.mechanisms import MECHANISMS, find_mechanism
from noisemarket.negotiation import run_options
from noisemarket.report.campaign_figures import draw_campaign
from noisemarket.report.campaign_page import campaign_page
from noisemarket.report.campaign_report import campaign_table, findings
from noisemarket.runfolder import STATUS, RunFolder
from noisemarket.scenario import Scenario, load_scenario

SEEDS, BUDGETS = 10, "30,100,300"
"""What is compared unless the command says otherwise."""

PLAN, TRAININGS, RESULTS, PAGE = "plan.json", "trainings.jsonl", "comparison.json", "report.html"
_LEFT_OUT = ("no_dp",)
"""No mechanism: nobody agreed to it. It is compared where it is named."""


@dataclass(frozen=True)
class CompareOptions:
    """What to compare, and how."""

    mechanisms: str | None
    seeds: int | None
    budgets: str | None
    resume: str | None
    workers: int | None


def run(request: Request, options: CompareOptions) -> None:
    """Run the command."""
    at_least_one("--workers", options.workers)
    at_least_one("--seeds", options.seeds)
    if options.resume is not None:
        folder, scenario, plan = _reopen(request, options)
    else:
        scenario = request.scenario()
        plan = _plan(scenario, options)
        _check(scenario, plan)
        folder = request.folder(scenario, f"{scenario.preset}-compare")
        keep_scenario(folder, scenario)
        folder.write_json(PLAN, {**vars(plan), "command": _command(request, plan)})
    effort = Effort()
    with folder:
        with stoppable() as stop:
            try:
                campaign = _trained(folder, scenario, plan, request, options, stop)
                rows = campaign.rows()
                _write_csv(folder, rows)  # should timing be stopped, the figures are there
                times = timings(scenario, plan.mechanisms, threads=request.threads, stop=stop)
            except Interrupted as problem:
                folder.status("incomplete", problem=str(problem))
                words = "stopped; what was trained is kept: continue with --resume "
                raise Interrupted(f"{words}{folder.path}.") from None
        document = {
            **_document(scenario, plan, rows, times),
            "command": _kept_command(folder.path),
            **_spent(effort, campaign, resumed=options.resume is not None),
        }
        folder.write_json(RESULTS, document)
        figures = draw_campaign(folder.path / "figures", rows, times)
        folder.write_text(PAGE, campaign_page(document, figures, folder.path / "scenario.toml"))
        folder.status("complete", **vars(plan))
    if request.json:
        print(json.dumps(document, allow_nan=False))
        return
    out = console()
    out.print(campaign_table(means(rows)))
    for line in findings(rows):
        out.print(line, markup=False, soft_wrap=True)
    print_paths(folder, figures)
    out.print(f"Report: {folder.path / PAGE}", soft_wrap=True, markup=False)


def _plan(scenario: Scenario, options: CompareOptions) -> Plan:
    names = names_of(options.mechanisms) or [name for name in MECHANISMS if name not in _LEFT_OUT]
    first = scenario.seed
    seeds = tuple(range(first, first + (options.seeds or SEEDS)))
    own = scenario.market.budget
    given = options.budgets or (BUDGETS if own == "none" else str(own))
    budgets = tuple(map(_budget, given.split(",")))
    if len(set(budgets)) < len(budgets):
        raise BadInput("--budgets", given, "name each budget once.")
    return Plan(tuple(names), budgets, seeds)


def _budget(word: str) -> float | None:
    if word.strip() == "none":
        return None
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        remedy = "give amounts of money separated by commas, or none for no limit."
        raise BadInput("--budgets", word.strip(), remedy)
    return value


def _check(scenario: Scenario, plan: Plan) -> None:
    """Refuse what cannot be compared, before anything is written."""
    if scenario.faults or scenario.market.aggregate != "mean":
        what = "faults" if scenario.faults else "market.aggregate"
        raise BadInput(what, "", "compare trains owners that keep their contracts: leave it out.")
    for section in scenario.compared:
        find_mechanism(section.mechanism)
    mechanisms = {name: find_mechanism(name) for name in plan.mechanisms}
    common = prepare(scenario.model_copy(update={"mechanism": "uniform"})).environment
    for name, mechanism in mechanisms.items():
        own = as_compared(scenario, name)
        try:
            check_weighting(mechanism, own.model_copy(update={"mechanism": name}))
            mechanism.check(common if own is scenario else own.environment(), run_options(own))
        except BadInput as bad:
            remedy = f"{bad.remedy[:-1]}, or leave {name} out of --mechanisms."
            raise BadInput(bad.field, bad.value, remedy) from None


def _reopen(request: Request, options: CompareOptions) -> tuple[RunFolder, Scenario, Plan]:
    resume = str(options.resume)
    others = (options.mechanisms, options.seeds, options.budgets)
    files = ("scenario.toml", STATUS, PLAN)
    allowed = "--workers, --threads and --json"
    path = request.resumed(resume, "the folder of a comparison", files, allowed, *others)
    try:
        plan = Plan.from_dict(json.loads((path / PLAN).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError):
        raise BadInput("--resume", str(path / PLAN), "cannot be read.") from None
    return RunFolder.reopen(path), load_scenario(path / "scenario.toml"), plan


def _trained(
    folder: RunFolder,
    scenario: Scenario,
    plan: Plan,
    request: Request,
    options: CompareOptions,
    stop: Stop,
) -> Campaign:
    known = read_trained(folder.path / TRAININGS)
    campaign = Campaign(
        scenario, plan, known, lambda one: folder.append(TRAININGS, line_of(one))
    )  # fmt: skip
    with progress("trainings") as bar:
        line = bar.add_task("deciding", total=None)
        campaign.decide(request.threads, stop)
        bar.update(line, description="training")
        say = _teller() if bar.disable else (lambda done, total: None)

        def told(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total)
            say(done, total)

        campaign.train(workers=options.workers, stop=stop, told=told)
    return campaign


def _teller() -> Callable[[int, int], None]:
    """Says on standard error how far it is and how long it will take, where no bar is shown."""
    begun: list[tuple[float, int]] = []

    def tell(done: int, total: int) -> None:
        begun.append((time.monotonic(), done))
        fresh = done - begun[0][1]
        left = ""
        if fresh and done < total:
            each = (begun[-1][0] - begun[0][0]) / fresh
            left = f", about {each * (total - done) / 60:.0f} minutes left"
        print(f"trained {done} of {total}{left}", file=sys.stderr, flush=True)

    return tell


def _document(
    scenario: Scenario, plan: Plan, rows: list[Row], times: list[Timing]
) -> dict[str, Any]:  # fmt: skip
    return {
        "preset": scenario.preset,
        "owners": scenario.population.owners,
        "rounds": scenario.training.rounds,
        "model": scenario.training.model,
        "surface": scenario.surface_name(),
        **vars(plan),
        "means": [one.as_dict() for one in means(rows)],
        "differences": [
            {**vars(one), "significant": one.significant} for one in paired_differences(rows)
        ],
        "same_contracts": [list(pair) for pair in same_contracts(rows)],
        "growth": [vars(one) for one in times],
        "rows": [vars(row) for row in rows],
        "settings": {one.mechanism: one.settings for one in scenario.compared},
    }


def _spent(effort: Effort, campaign: Campaign, *, resumed: bool) -> dict[str, object]:
    """Date, machine and what it took; of a resumed run, whose last part says little, no seconds."""
    last = ("seconds", "cpu_seconds") if resumed else ()
    spent = {key: value for key, value in effort.as_dict().items() if key not in last}
    return {**spent, "training_cpu_seconds": round(campaign.training_cpu_seconds, 1)}


def _command(request: Request, plan: Plan) -> str:
    """The command that makes such a comparison, with what it left to the defaults."""
    budgets = ",".join("none" if one is None else f"{one:g}" for one in plan.budgets)
    words = ["noisemarket", "compare", *([request.file] if request.file else [])]
    words += ["--preset", request.preset] if request.preset else []
    words += ["--mechanisms", ",".join(plan.mechanisms), "--seeds", str(len(plan.seeds))]
    words += ["--budgets", budgets]
    for setting in request.settings or []:
        words += ["--set", setting]
    return shlex.join(words + (["--seed", str(request.seed)] if request.seed is not None else []))


def _kept_command(path: Path) -> str:
    return str(json.loads((path / PLAN).read_text(encoding="utf-8")).get("command", ""))


def _write_csv(folder: RunFolder, rows: list[Row]) -> None:
    columns = ("mechanism", "budget", "seed", *AVERAGED)
    cells = [["" if (one := getattr(row, name)) is None else one for name in columns]
             for row in rows]  # fmt: skip
    folder.write_text("comparison.csv", csv_text(columns, cells))
