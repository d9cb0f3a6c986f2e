"""``noisemarket calibrate``: measure accuracy over noise and non-IID data, and fit the surface."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from noisemarket.cli.app import CalibrateOptions
from noisemarket.cli.common import paths, progress, show, stoppable
from noisemarket.errors import BadInput, Interrupted, MissingExtra, NoisemarketError
from noisemarket.market.orders import given_sigma
from noisemarket.market.run_folder import RunFolder
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.scenario.account import protection_of
from noisemarket.show.calibration_report import calibration_table, draw_calibration
from noisemarket.study.calibrate import (
    MIXED,
    Grid,
    fingerprint,
    points_of,
    simulated,
    some_of,
    tasks_of,
)
from noisemarket.study.fit import calibrated, surface_file
from noisemarket.study.trainings import (
    TRAININGS,
    Orders,
    TrainingFile,
    TrainingTask,
    data_of,
)

PLAN = "calibration.json"


@dataclass(frozen=True)
class CalibrationPlan:
    """What a calibration measures, what its surface is called, and what all points must share.

    ``data`` is the SHA-256 of the images, ``fingerprint`` that of the settings and of ``data``.
    """

    name: str
    grid: Grid
    command: str
    data: str
    labels: int
    fingerprint: str

    def document(self) -> dict[str, Any]:
        """As plain values for JSON."""
        values = asdict(self)
        return {"name": values.pop("name"), **values.pop("grid"), **values}


def run(options: CalibrateOptions) -> None:
    """Measure what is missing, then fit, draw and write the surface."""
    resumed = options.resume is not None
    folder, scenario, plan = _reopen(options) if resumed else _start(options)
    tasks = tasks_of(scenario, plan.grid)
    with ExitStack() as stack:
        if not resumed:
            stack.enter_context(folder)
        file = stack.enter_context(TrainingFile(folder.path / TRAININGS))
        to_measure = any(one.key not in file.results for one in tasks.values())
        if to_measure and data_of(scenario).sha256 != plan.data:
            where = scenario.training.data or "MNIST"
            remedy = "differs from the data of the first points: start a new folder."
            raise BadInput("data", where, remedy)
        if resumed:  # only now is it known to be of this data and not in use
            folder = stack.enter_context(RunFolder.reopen(folder.path))
        folder.write_json(PLAN, plan.document())
        problem = _measure(folder, scenario, [*tasks.values()], file, options.workers)
        points, wanted = points_of(tasks, file.results), len(tasks)
        missing = wanted - len(points)
        result = calibrated(plan.name, plan.command, wanted, missing, points, plan.labels)
        folder.write_json("summary.json", result.summary(scenario))
        if (text := surface_file(result, scenario)) is not None:
            folder.write_text(f"{plan.name}.toml", text)
        figures = draw_calibration(folder, result)
        state = "incomplete" if missing else "complete"
        folder.status(state, points=wanted, points_done=wanted - missing)
    if problem is not None and missing:
        words = f"stopped after {wanted - missing} of {wanted} points"
        if not isinstance(problem, Interrupted):
            words = f"{str(problem).rstrip('.')}; {words}"
        raise type(problem)(f"{words}; continue with --resume {folder.path}.")
    said = list(result.remarks)
    if result.fit is not None:
        surface = folder.path / f"{result.name}.toml"
        said.append(f"Surface: {surface} (use it with --set surface={surface})")
    said += paths(folder, figures)
    show(options.json, result.summary(scenario), calibration_table(result), *said)


def _start(options: CalibrateOptions) -> tuple[RunFolder, Scenario, CalibrationPlan]:
    scenario = simulated(options.load())
    data = data_of(scenario)
    alike = fingerprint(scenario, data.sha256)
    nothing = CalibrationPlan("", _usual(scenario), "", data.sha256, data.classes, alike)
    plan = _plan(scenario, options, nothing)
    _try_out(scenario, plan)
    return options.folder(scenario, "calibrate"), scenario, plan


def _reopen(options: CalibrateOptions) -> tuple[RunFolder, Scenario, CalibrationPlan]:
    allowed = "--sigmas, --betas, --mixed, --seeds, --name, --workers and --json"
    path = options.resumed("a calibration", ("scenario.toml", PLAN), allowed)
    scenario = load_scenario(path / "scenario.toml")
    try:
        saved = json.loads((path / PLAN).read_text(encoding="utf-8"))
        mixed = tuple((float(share), float(sigma)) for share, sigma in saved["mixed"])
        grid = Grid(tuple(saved["sigmas"]), tuple(saved["betas"]), int(saved["seeds"]), mixed)
        before = CalibrationPlan(
            str(saved["name"]), grid, str(saved["command"]), str(saved["data"]),
            int(saved["labels"]), str(saved["fingerprint"]),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError):
        remedy = f"has a {PLAN} that cannot be read."
        raise BadInput("--resume", options.resume, remedy) from None
    if fingerprint(scenario, before.data) != before.fingerprint:
        remedy = "has a scenario.toml that changed after its first points: start a new folder."
        raise BadInput("--resume", options.resume, remedy)
    plan = _plan(scenario, options, before)
    if plan.grid != grid:
        _try_out(scenario, plan)
    return RunFolder(path), scenario, plan


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


def _pairs_text(values: Sequence[tuple[float, float]]) -> str:
    """Pairs as ``_pairs`` reads them."""
    return ",".join(f"{share:.12g}:{sigma:.12g}" for share, sigma in values) or "none"


def _plan(
    scenario: Scenario, options: CalibrateOptions, before: CalibrationPlan
) -> CalibrationPlan:
    """The earlier plan (or the default, which has no name) with the options applied."""
    given: dict[str, Any] = {} if options.seeds is None else {"seeds": options.seeds}
    for option, read in (("sigmas", _numbers), ("betas", _numbers), ("mixed", _pairs)):
        if (text := getattr(options, option)) is not None:
            given[option] = read(f"--{option}", text)
    grid = replace(before.grid, **given)
    name = options.name or before.name or f"{protection_of(scenario).name}-measured"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name) or name == "printed":
        raise BadInput("--name", name, 'give letters, digits, "-" and "_", and not "printed".')
    start = re.sub(r" --sigmas .*", "", before.command) or options.command_line("calibrate")
    sigmas, betas = (",".join(f"{v:.12g}" for v in values) for values in (grid.sigmas, grid.betas))
    command = (
        f"{start} --sigmas {sigmas} --betas {betas} --mixed {_pairs_text(grid.mixed)} "
        f"--seeds {grid.seeds} --name {name}"
    )
    return replace(before, name=name, grid=grid, command=command)


def _usual(scenario: Scenario) -> Grid:
    """The default: where noise decides the weights, contracts of one market are mixed, too."""
    owners = scenario.population.owners
    mixed = [one for one in MIXED if 0 < round(one[0] * owners) < owners]
    return Grid(mixed=tuple(mixed) if scenario.training.weighting == "noise" else ())


def _try_out(scenario: Scenario, plan: CalibrationPlan) -> None:
    """Find bad input before anything is written or measured."""
    environment, sigma_max = scenario.environment(), scenario.game.sigma_max
    for sigma in plan.grid.sigmas:
        given_sigma(sigma, environment)
    for share, sigma in plan.grid.mixed:
        some_of(share, scenario.population.owners)
        if sigma > sigma_max:
            raise BadInput("--mixed", sigma, f"give a sigma from 0 to sigma_max = {sigma_max:g}.")
    first = next(iter(tasks_of(scenario, plan.grid).values()))
    Orders(scenario, data_of(scenario)).under(first)


def _measure(
    folder: RunFolder,
    scenario: Scenario,
    tasks: Sequence[TrainingTask],
    file: TrainingFile,
    workers: int | None,
) -> NoisemarketError | None:
    """Measure all missing points; returns what ended it before all were."""
    with stoppable() as stop, progress("points") as bar:
        line = bar.add_task("calibrating", total=len(tasks))

        def watch(done: int, total: int) -> None:
            bar.update(line, completed=done)
            folder.status("running", points=total, points_done=done)

        try:
            file.train(scenario, tasks, workers=workers, stop=stop, watch=watch)
        except (BadInput, MissingExtra):
            raise
        except NoisemarketError as problem:
            return problem
    return None
