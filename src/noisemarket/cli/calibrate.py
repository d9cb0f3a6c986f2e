"""``noisemarket calibrate``: measure accuracy over noise and non-IID data, and fit the surface."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

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
)
from noisemarket.cli.estimate import announce
from noisemarket.errors import BadInput, Interrupted, MissingExtra, NoisemarketError

if TYPE_CHECKING:
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import Scenario
    from noisemarket.study.calibrate import CalibrationPlan
    from noisemarket.study.trainings import TrainingFile, TrainingTask

PLAN = "calibration.json"


def calibrate(
    context: typer.Context,
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    sigmas: Annotated[
        str | None, Option(help="Noise scales, separated by commas; by default 0,0.1,...,0.6.")
    ] = None,
    betas: Annotated[
        str | None, Option(help="Non-IID degrees, separated by commas; by default 0.1,1,10.")
    ] = None,
    mixed: Annotated[
        str | None,
        Option(
            help="Mixed contracts as share:sigma, separated by commas: that share of the owners "
            "has this noise, the others sigma_max. By default nine such pairs if the weighting is "
            "noise; none for none."
        ),
    ] = None,
    seeds: Annotated[int | None, Option(help="Runs per point; by default 1.")] = None,
    name: Annotated[str | None, Option(help="Name of the surface.")] = None,
    seed: opt.Seed = None,
    out: opt.Out = None,
    overwrite: opt.Overwrite = False,
    resume: opt.Resume = None,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Measure accuracy over noise and non-IID data by training, and fit a loss surface."""
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import load_scenario
    from noisemarket.scenario.surface_file import fingerprint
    from noisemarket.show.calibration_report import calibration_table, draw_calibration
    from noisemarket.study import calibrate as study
    from noisemarket.study.fit import Calibration
    from noisemarket.study.trainings import TRAININGS, TrainingFile, data_of

    given: dict[str, Any] = {} if seeds is None else {"seeds": seeds}
    for option, text, read in (
        ("sigmas", sigmas, _numbers), ("betas", betas, _numbers), ("mixed", mixed, _pairs)
    ):  # fmt: skip
        if text is not None:
            given[option] = read(f"--{option}", text)
    if resume is None:
        scenario = study.simulated(load(file, preset, settings, seed))
        plan = _plan(study.usual_plan(scenario, command_line(context)), given, name)
        study.try_out(scenario, plan.grid)
        folder = new_folder(scenario, "calibrate", out, overwrite, file)
    else:
        path = resumed(context, resume, "a calibration", ("scenario.toml", PLAN), "--workers")
        scenario, plan = (
            load_scenario(path / "scenario.toml"),
            saved_plan(path, PLAN, study.CalibrationPlan),
        )
        if fingerprint(scenario, plan.data) != plan.fingerprint:
            remedy = "has a scenario.toml that changed after its first points: start a new folder."
            raise BadInput("--resume", resume, remedy)
        folder = RunFolder(path)
    tasks = study.tasks_of(scenario, plan.grid)
    with ExitStack() as stack:
        if resume is None:
            stack.enter_context(folder)
        trainings = stack.enter_context(TrainingFile(folder.path / TRAININGS))
        to_measure = any(one.key not in trainings.results for one in tasks.values())
        if to_measure and data_of(scenario).sha256 != plan.data:
            where = scenario.training.data or "MNIST"
            remedy = "differs from the data of the first points: start a new folder."
            raise BadInput("data", where, remedy)
        if resume is not None:  # only now is it known to be of this data and not in use
            folder = stack.enter_context(RunFolder.reopen(folder.path))
        folder.write_json(PLAN, asdict(plan))
        announce(scenario, sum(one.key not in trainings.results for one in tasks.values()), workers)
        problem = _measure(folder, scenario, [*tasks.values()], trainings, workers)
        points, wanted = study.points_of(tasks, trainings.results), len(tasks)
        missing = wanted - len(points)
        result = Calibration(plan.name, plan.command, wanted, points, plan.labels)
        summary = result.summary(scenario)
        folder.write_json("summary.json", summary)
        if (surface := result.surface_file(scenario, plan.data)) is not None:
            folder.write_text(f"{plan.name}.toml", surface)
        figures = draw_calibration(folder, result)
        state = "incomplete" if missing else "complete"
        folder.status(state, points=wanted, points_done=wanted - missing)
    if problem is not None and missing:
        words = f"stopped after {wanted - missing} of {wanted} points"
        if not isinstance(problem, Interrupted):
            words = f"{str(problem).rstrip('.')}; {words}"
        raise type(problem)(f"{words}; continue with --resume {folder.path}.")
    shown = list(result.remarks)
    if result.fit is not None:
        path = folder.path / f"{result.name}.toml"
        shown.append(f"Surface: {path} (use it with --set surface={path})")
    table = calibration_table(result)
    show(as_json, summary, *([table] if table.row_count else []), *shown, *paths(folder, figures))


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) + 0.0 for part in text.split(","))
    except ValueError:
        raise BadInput(option, text, "give numbers with commas between them.") from None


def _pairs(option: str, text: str) -> tuple[tuple[float, float], ...]:
    """Pairs, as in ``0.1:0.05,0.5:0.2``; ``none`` for none at all."""
    if text == "none":
        return ()
    try:
        return tuple((float(share), float(sigma)) for share, sigma in
                     (part.split(":") for part in text.split(",")))  # fmt: skip
    except ValueError:
        remedy = "give pairs share:sigma with commas between them, or none."
        raise BadInput(option, text, remedy) from None


def _plan(usual: CalibrationPlan, given: dict[str, Any], name: str | None) -> CalibrationPlan:
    """The default plan with the options applied."""
    name = name or usual.name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name) or name == "printed":
        raise BadInput("--name", name, 'give letters, digits, "-" and "_", and not "printed".')
    return replace(usual, name=name, grid=replace(usual.grid, **given))


def _measure(
    folder: RunFolder,
    scenario: Scenario,
    tasks: Sequence[TrainingTask],
    file: TrainingFile,
    workers: int | None,
) -> NoisemarketError | None:
    """Measure all missing points; returns what ended it before all were."""
    with stoppable(TRAINING_DROPPED) as stop, progress("points") as bar:
        line = bar.add_task("calibrating", total=len(tasks))

        def watch(done: int, total: int) -> None:
            bar.update(line, completed=done)
            if done:
                step_done(bar, f"measured {done} of {total}")
            folder.status("running", points=total, points_done=done)

        try:
            file.train(scenario, tasks, workers=workers, stop=stop, watch=watch)
        except (BadInput, MissingExtra):
            raise
        except NoisemarketError as problem:
            return problem
    return None
