"""``noisemarket compare``: the mechanisms on the same owners, data and seeds, up to the model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from noisemarket.cli.app import CompareOptions
from noisemarket.cli.common import Stop, paths, progress, show, stoppable
from noisemarket.errors import BadInput, Interrupted
from noisemarket.formats import csv_text
from noisemarket.machine import Effort
from noisemarket.market.negotiation import Negotiation, run_options
from noisemarket.market.preparation import check_weighting, prepare
from noisemarket.market.run_folder import STATUS, RunFolder
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.show.comparison_report import (
    GAME_COLUMNS,
    comparison_page,
    draw_game,
    draw_trained,
    findings,
    game_csv_rows,
    game_rows,
    game_table,
    trained_table,
)
from noisemarket.show.style import name_of
from noisemarket.study.compare import Comparison, Plan, or_left_out
from noisemarket.study.results import AVERAGED, comparison_document
from noisemarket.study.trainings import TRAININGS, TrainingFile

SEEDS, BUDGETS = 10, "30,100,300"
"""What is compared unless the command says otherwise."""

PLAN, RESULTS, PAGE = "plan.json", "comparison.json", "report.html"
_LEFT_OUT = ("no_dp",)
"""No mechanism: nobody agreed to it. It is compared where it is named."""


def run(options: CompareOptions) -> None:
    """Run the command."""
    if options.game_only:
        _game_only(options)
        return
    if options.resume is not None:
        folder, scenario, plan, command = _reopen(options)
    else:
        scenario = options.load()
        plan = _plan(scenario, options)
        _check(scenario, plan)
        command = _command(options, plan)
        folder = options.folder(scenario, "compare")
    effort = Effort()
    with folder, TrainingFile(folder.path / TRAININGS) as file:
        folder.write_json(PLAN, {**vars(plan), "command": command})
        with stoppable() as stop:
            try:
                comparison = _trained(file, scenario, plan, options, stop)
                rows = comparison.rows()
            except Interrupted as problem:
                folder.status("incomplete", problem=str(problem))
                words = "stopped; what was trained is kept: continue with --resume "
                raise Interrupted(f"{words}{folder.path}.") from None
        columns = ("mechanism", "budget", "seed", *AVERAGED)
        cells = ([getattr(row, name) for name in columns] for row in rows)
        folder.write_text("comparison.csv", csv_text(columns, cells))
        document = {
            "preset": scenario.preset,
            "owners": scenario.population.owners,
            "rounds": scenario.training.rounds,
            "model": scenario.training.model,
            "surface": scenario.surface_name(),
            **vars(plan),
            **comparison_document(rows),
            "command": command,
            **_spent(effort, comparison, resumed=options.resume is not None),
        }
        folder.write_json(RESULTS, document)
        figures = draw_trained(folder.path / "figures", rows)
        folder.write_text(PAGE, comparison_page(document, figures, folder.path / "scenario.toml"))
        folder.status("complete", **vars(plan))
    show(
        options.json, document, trained_table(document["means"]), *findings(rows),
        *paths(folder, figures), f"Report: {folder.path / PAGE}",
    )  # fmt: skip


def _game_only(options: CompareOptions) -> None:
    """Compare what is agreed on one population, without training."""
    for name in ("seeds", "budgets", "resume", "workers"):
        if (value := getattr(options, name)) is not None:
            remedy = "is for trained comparisons: leave out --game-only."
            raise BadInput(f"--{name}", str(value), remedy)
    scenario = options.load()
    names = _names(options) or list(MECHANISMS)
    environment = scenario.environment()
    for name in names:
        with or_left_out(name):
            find_mechanism(name).check(environment, run_options(scenario))
    with options.folder(scenario, "compare") as folder:
        results: dict[str, Negotiation] = {}
        with stoppable() as stop, progress("mechanisms") as bar:
            line = bar.add_task("comparing", total=len(names))
            for name in names:
                bar.update(line, description=f"comparing, {name_of(name)}")
                named = scenario.model_copy(update={"mechanism": name})
                agreed = find_mechanism(name).run(
                    environment, run_options(named, options.workers, stop=stop)
                )
                if agreed.complete:
                    results[name] = Negotiation(named, environment, agreed)
                bar.advance(line)
                if stop():
                    break
        rows = game_rows(results)
        folder.write_text("comparison.csv", csv_text(GAME_COLUMNS, game_csv_rows(rows)))
        folder.write_json(RESULTS, rows)
        figures = draw_game(folder.path / "figures", rows) if rows else []
        state = "complete" if len(results) == len(names) else "incomplete"
        folder.status(state, mechanisms=names, mechanisms_done=list(results))
    if state == "incomplete":
        raise Interrupted(
            f"stopped after {len(results)} of {len(names)} mechanisms; their results are in "
            f"{folder.path} (status: incomplete)."
        )
    document = {"seed": scenario.seed, "mechanisms": rows}
    show(options.json, document, game_table(rows), *paths(folder, figures))


def _names(options: CompareOptions) -> list[str]:
    """The mechanisms that are named; none if the option is not given."""
    given = options.mechanisms
    names = [name.strip() for name in given.split(",")] if given else []
    if len(set(names)) != len(names):
        raise BadInput("--mechanisms", given, "name each mechanism once.")
    return names


def _plan(scenario: Scenario, options: CompareOptions) -> Plan:
    names = _names(options) or [name for name in MECHANISMS if name not in _LEFT_OUT]
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
    mechanisms = {name: find_mechanism(name) for name in plan.mechanisms}
    common = prepare(scenario.model_copy(update={"mechanism": "uniform"})).environment
    for name, mechanism in mechanisms.items():
        with or_left_out(name):
            check_weighting(mechanism, scenario.model_copy(update={"mechanism": name}))
            mechanism.check(common, run_options(scenario))


def _reopen(options: CompareOptions) -> tuple[RunFolder, Scenario, Plan, str]:
    others = (options.mechanisms, options.seeds, options.budgets)
    files = ("scenario.toml", STATUS, PLAN)
    allowed = "--workers and --json"
    path = options.resumed("the folder of a comparison", files, allowed, *others)
    try:
        saved = json.loads((path / PLAN).read_text(encoding="utf-8"))
        plan, command = Plan.from_dict(saved), str(saved.get("command", ""))
    except (ValueError, KeyError, TypeError):
        raise BadInput("--resume", str(path / PLAN), "cannot be read.") from None
    scenario = load_scenario(path / "scenario.toml")
    return RunFolder.reopen(path), scenario, plan, command


def _trained(
    file: TrainingFile, scenario: Scenario, plan: Plan, options: CompareOptions, stop: Stop
) -> Comparison:
    comparison = Comparison(scenario, plan, file)
    with progress("trainings") as bar:
        line = bar.add_task("deciding", total=None)
        comparison.decide(options.workers, stop)
        bar.update(line, description="training")
        say = _teller() if bar.disable else (lambda done, total: None)

        def watch(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total)
            say(done, total)

        comparison.train(workers=options.workers, stop=stop, watch=watch)
    return comparison


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


def _spent(effort: Effort, comparison: Comparison, *, resumed: bool) -> dict[str, object]:
    """Date, machine and processor time; seconds only of a run that was not resumed."""
    last = ("seconds", "cpu_seconds") if resumed else ()
    spent = {key: value for key, value in effort.as_dict().items() if key not in last}
    return {**spent, "training_cpu_seconds": round(comparison.training_cpu_seconds, 1)}


def _command(options: CompareOptions, plan: Plan) -> str:
    """The command that repeats the comparison, defaults written out."""
    budgets = ",".join("none" if one is None else f"{one:g}" for one in plan.budgets)
    return options.command_line(
        "compare", "--mechanisms", ",".join(plan.mechanisms), "--seeds", str(len(plan.seeds)),
        "--budgets", budgets,
    )  # fmt: skip
