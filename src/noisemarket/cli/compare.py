"""``noisemarket compare``: the mechanisms on the same owners, data and seeds, up to the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import (
    TRAINING_DROPPED,
    command_line,
    load,
    new_folder,
    paths,
    progress,
    resumed,
    saved_plan,
    show,
    step_done,
    stoppable,
    with_surface,
)
from noisemarket.cli.estimate import announce
from noisemarket.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from rich.progress import Progress

    from noisemarket.market.negotiation import Negotiation
    from noisemarket.scenario import Scenario

PLAN = "plan.json"


def compare(
    context: typer.Context,
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    mechanisms: Annotated[
        str | None,
        Option(
            help=f"Mechanisms to compare, separated by commas; by default all: {opt.MECHANISMS}."
        ),
    ] = None,
    seeds: Annotated[
        int | None, Option(min=1, help="Seeds of owners, data and noise; by default 10.")
    ] = None,
    budgets: Annotated[
        str | None,
        Option(
            help="Budgets, separated by commas, or none; by default the scenario's, or 30,100,300."
        ),
    ] = None,
    game_only: Annotated[
        bool, Option("--game-only", help="Only what is agreed, on one seed: no training.")
    ] = False,
    seed: opt.Seed = None,
    out: opt.Out = None,
    overwrite: opt.Overwrite = False,
    resume: opt.Resume = None,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Compare mechanisms on the same owners, data and seeds, through to the trained model."""
    from noisemarket.formats import csv_text
    from noisemarket.machine import Effort
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import load_scenario
    from noisemarket.show import comparison_report as report
    from noisemarket.study.compare import SEEDS, Plan, check, compared, parts_of, plan_of
    from noisemarket.study.results import AVERAGED, comparison_document
    from noisemarket.study.trainings import TRAININGS, TrainingFile

    named = None if mechanisms is None else [one.strip() for one in mechanisms.split(",")]
    if game_only:
        trained = {"seeds": seeds, "budgets": budgets, "resume": resume, "workers": workers}
        for name, value in trained.items():
            if value is not None:
                remedy = "is for trained comparisons: leave out --game-only."
                raise BadInput(f"--{name}", str(value), remedy)
        scenario = load(file, preset, settings, seed)
        _game_only(scenario, named, out, overwrite, file, as_json)
        return
    if resume is not None:
        files = ("scenario.toml", "status.json", PLAN)
        path = resumed(context, resume, "the folder of a comparison", files, "--workers")
        plan = saved_plan(path, PLAN, Plan)
        scenario = load_scenario(path / "scenario.toml")
        folder = RunFolder.reopen(path)
    else:
        scenario = load(file, preset, settings, seed)
        parts = parts_of(named)
        amounts = None if budgets is None else [_budget(word) for word in budgets.split(",")]
        plan = plan_of(scenario, parts, seeds or SEEDS, amounts, command_line(context))
        check(scenario, parts)
        scenario = with_surface(scenario, workers, out, overwrite)
        folder = new_folder(scenario, "compare", out, overwrite, file)
    effort = Effort()
    with folder, TrainingFile(folder.path / TRAININGS) as trainings:
        folder.write_json(PLAN, vars(plan))
        try:
            with stoppable(TRAINING_DROPPED) as stop, progress("trainings") as bar:
                watch = _watch(bar, scenario, workers)
                rows = compared(scenario, plan, trainings, workers=workers, stop=stop, watch=watch)
        except Interrupted as problem:
            folder.status("incomplete", problem=str(problem))
            words = "stopped; what was trained is kept: continue with --resume "
            raise Interrupted(f"{words}{folder.path}.") from None
        columns = ("mechanism", "budget", "seed", *AVERAGED)
        cells = ([getattr(row, name) for name in columns] for row in rows)
        folder.write_text("comparison.csv", csv_text(columns, cells))
        spent = effort.as_dict()
        if resume is not None:  # the time of all parts is not known
            del spent["seconds"], spent["cpu_seconds"]
        document = {
            "preset": scenario.preset,
            "owners": scenario.population.owners,
            "rounds": scenario.training.rounds,
            "model": scenario.training.model,
            "surface": scenario.surface_name(),
            "currency": scenario.market.currency,
            **vars(plan),
            **comparison_document(rows),
            **spent,
            "training_cpu_seconds": round(trainings.cpu_seconds, 1),
        }
        folder.write_json("comparison.json", document)
        figures = report.draw_trained(folder.path / "figures", rows, document["currency"])
        folder.status("complete", **vars(plan))
    show(
        as_json, document, report.trained_table(document), *report.findings(rows),
        *paths(folder, figures),
    )  # fmt: skip


def _game_only(
    scenario: Scenario, named: Sequence[str] | None, out: str | None, overwrite: bool,
    file: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare what is agreed on one population, without training."""
    from noisemarket.formats import csv_text
    from noisemarket.market.negotiation import Negotiation, run_options
    from noisemarket.market.orders import with_caps
    from noisemarket.pricing import MECHANISMS, find_mechanism
    from noisemarket.show import comparison_report as report
    from noisemarket.show import negotiation_report
    from noisemarket.show.style import name_of
    from noisemarket.study.compare import check, parts_of

    names = list(named or MECHANISMS)
    check(scenario, parts_of(names), trained=False)
    scenario = with_surface(scenario, None, out, overwrite)
    environment = with_caps(scenario)
    with new_folder(scenario, "compare", out, overwrite, file) as folder:
        results: dict[str, Negotiation] = {}
        with stoppable() as stop, progress("mechanisms") as bar:
            line = bar.add_task("comparing", total=len(names))
            for name in names:
                bar.update(line, description=f"comparing, {name_of(name)}")
                chosen = scenario.model_copy(update={"mechanism": name})
                agreed = find_mechanism(name).run(environment, run_options(chosen, stop=stop))
                if agreed.complete:
                    results[name] = Negotiation(chosen, environment, agreed)
                bar.advance(line)
                if stop():
                    break
        rows = report.game_rows(results)
        csv = csv_text(report.GAME_COLUMNS, report.game_csv_rows(rows))
        folder.write_text("comparison.csv", csv)
        folder.write_json("comparison.json", rows)
        figures, currency = list[Path](), scenario.market.currency
        if curves := negotiation_report.game_curves(results):
            points = negotiation_report.curve_csv_rows(curves)
            folder.write_text("curves.csv", csv_text(negotiation_report.CURVE_COLUMNS, points))
            figures = negotiation_report.draw_curves(folder.path / "figures", curves, currency)
        state = "complete" if len(results) == len(names) else "incomplete"
        folder.status(state, mechanisms=names, mechanisms_done=list(results))
    if state == "incomplete":
        raise Interrupted(
            f"stopped after {len(results)} of {len(names)} mechanisms; their results are in "
            f"{folder.path} (status: incomplete)."
        )
    document = {"seed": scenario.seed, "currency": currency, "mechanisms": rows}
    show(as_json, document, report.game_table(rows, currency), *paths(folder, figures))


def _budget(word: str) -> float | None:
    try:
        return None if word.strip() == "none" else float(word)
    except ValueError:
        remedy = "give amounts of money separated by commas, or none for no limit."
        raise BadInput("--budgets", word.strip(), remedy) from None


def _watch(bar: Progress, scenario: Scenario, workers: int | None) -> Callable[[int, int], None]:
    """Shows how many trainings are done, once all mechanisms have decided."""
    line, begun = bar.add_task("deciding", total=None), False

    def watch(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            announce(scenario, total - done, workers)
            begun = True
        bar.update(line, completed=done, total=total, description="training")
        if done:
            step_done(bar, f"trained {done} of {total}")

    return watch
