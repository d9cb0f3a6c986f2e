"""``noisemarket calibrate``: measure accuracy over noise and non-IID data, and fit the surface."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from noisemarket.calibration.grid import Grid, Setting, numbers
from noisemarket.calibration.measure import (
    data_of,
    fingerprint,
    forget,
    measure,
    point_order,
    simulated,
)
from noisemarket.calibration.points import POINTS, Point, Points
from noisemarket.calibration.result import Calibration, calibrated, surface_file
from noisemarket.cli.common import Request, console, keep_scenario, progress, stoppable
from noisemarket.errors import BadInput, Interrupted, MissingExtra, NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.report.calibration_report import calibration_table, draw_calibration
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.training import one_sigma

PLAN, CHECKPOINTS = "calibration.json", "checkpoints"

_STOPPING = "Stopping: all rounds that are done are kept. Ctrl-C again stops at once."


@dataclass(frozen=True)
class CalibrateOptions:
    """The options of this command alone, as given; None where they were not."""

    sigmas: str | None
    betas: str | None
    seeds: int | None
    name: str | None
    resume: str | None
    fit_only: bool
    workers: int | None


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


def run(request: Request, asked: CalibrateOptions) -> None:
    """Measure what is missing, then fit, draw and write the surface."""
    if asked.workers is not None and asked.workers < 1:
        raise BadInput("--workers", asked.workers, "give at least 1.")
    if asked.resume is not None:
        folder, scenario, plan = _reopen(asked.resume, request, asked)
    else:
        folder, scenario, plan = _start(request, asked)
    settings = list(plan.grid.settings(scenario.seed))
    with Points(folder.path / POINTS, plan.fingerprint) as points:
        to_measure = not asked.fit_only and any(one not in points for one in settings)
        if to_measure and data_of(scenario).sha256 != plan.data:
            where = scenario.training.data or "MNIST"
            remedy = "is not what the first points were measured with: start a new folder."
            raise BadInput("data", where, remedy)
        with RunFolder.reopen(folder.path) if asked.resume else folder as folder:
            folder.write_json(PLAN, plan.document())
            problems: list[str] = []
            stopped = False
            if not asked.fit_only:
                stopped = _measure(folder, scenario, plan, points, asked.workers, problems)
            missing = sum(one not in points for one in settings)
            result = _finish(folder, scenario, plan, points.all(), missing)
    if stopped:
        raise Interrupted(
            f"stopped after {len(plan.grid) - missing} of {len(plan.grid)} points; go on with "
            f"--resume {folder.path}."
        )
    if problems:
        raise NoisemarketError(
            f"{len(problems)} of {len(plan.grid)} points could not be measured, --resume "
            f"{folder.path} tries again; {problems[0]}"
        )
    if request.json:
        print(json.dumps(result.summary(scenario), allow_nan=False))
    else:
        _show(folder, result)


def _start(
    request: Request, asked: CalibrateOptions
) -> tuple[RunFolder, Scenario, CalibrationPlan]:
    if asked.fit_only:
        raise BadInput("--fit-only", "true", "name the folder to fit by --resume.")
    scenario = simulated(request.scenario())
    data = data_of(scenario)
    alike = fingerprint(scenario, data.sha256)
    plan = _plan(
        scenario, request, asked, CalibrationPlan("", Grid(), "", data.sha256, data.classes, alike)
    )
    _try_out(scenario, plan)
    folder = request.folder(scenario, f"{scenario.preset}-calibrate")
    keep_scenario(folder, scenario)
    folder.write_json(PLAN, plan.document())
    return folder, scenario, plan


def _reopen(
    resume: str, request: Request, asked: CalibrateOptions
) -> tuple[RunFolder, Scenario, CalibrationPlan]:
    path = Path(resume)
    if request.file or request.preset or request.settings or request.out or request.overwrite:
        remedy = "beside it give only --sigmas, --betas, --seeds and --name."
        raise BadInput("--resume", resume, remedy)
    if request.seed is not None:
        raise BadInput("--resume", resume, "give no --seed beside it.")
    for name in ("scenario.toml", PLAN):
        if not (path / name).is_file():
            raise BadInput("--resume", resume, f"is no calibration: it has no {name}.")
    scenario = load_scenario(path / "scenario.toml")
    try:
        held = json.loads((path / PLAN).read_text(encoding="utf-8"))
        grid = Grid(tuple(held["sigmas"]), tuple(held["betas"]), int(held["seeds"]))
        before = CalibrationPlan(
            str(held["name"]), grid, str(held["command"]), str(held["data"]),
            int(held.get("labels", 0)), str(held["fingerprint"]),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError):
        raise BadInput("--resume", resume, f"has a {PLAN} that cannot be read.") from None
    if fingerprint(scenario, before.data) != before.fingerprint:
        remedy = "has a scenario.toml that was changed since its first points: start a new folder."
        raise BadInput("--resume", resume, remedy)
    plan = _plan(scenario, request, asked, before)
    if not asked.fit_only and plan.grid != grid:
        _try_out(scenario, plan)
    return RunFolder(path), scenario, plan


def _plan(
    scenario: Scenario, request: Request, asked: CalibrateOptions, before: CalibrationPlan
) -> CalibrationPlan:
    """The plan that the options make out of the one that was, or of the nameless default."""
    grid = before.grid
    if asked.sigmas is not None:
        grid = replace(grid, sigmas=numbers("--sigmas", asked.sigmas))
    if asked.betas is not None:
        grid = replace(grid, betas=numbers("--betas", asked.betas))
    if asked.seeds is not None:
        grid = replace(grid, seeds=asked.seeds)
    name = asked.name or before.name or f"{scenario.privacy.protection}-measured"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name) or name == "printed":
        raise BadInput("--name", name, 'give letters, digits, "-" and "_", and not "printed".')
    if before.command:
        start = re.sub(r" --sigmas .*", "", before.command)
    else:
        words = ["noisemarket", "calibrate", *([request.file] if request.file else [])]
        words += ["--preset", request.preset] if request.preset else []
        for setting in request.settings or ():
            words += ["--set", setting]
        words += ["--seed", str(request.seed)] if request.seed is not None else []
        start = shlex.join(words)
    sigmas, betas = (",".join(f"{v:.12g}" for v in values) for values in (grid.sigmas, grid.betas))
    command = f"{start} --sigmas {sigmas} --betas {betas} --seeds {grid.seeds} --name {name}"
    return replace(before, name=name, grid=grid, command=command)


def _try_out(scenario: Scenario, plan: CalibrationPlan) -> None:
    """Find bad input before anything is written or measured."""
    sigma_max = scenario.game.sigma_max
    for sigma in plan.grid.sigmas:
        one_sigma(sigma, 1, sigma_max)
    point_order(scenario, next(plan.grid.settings(scenario.seed)))


def _measure(
    folder: RunFolder,
    scenario: Scenario,
    plan: CalibrationPlan,
    points: Points,
    workers: int | None,
    problems: list[str],
) -> bool:
    """Measure all points that are missing; says whether it was asked to stop before the end."""
    place = folder.path / CHECKPOINTS
    settings = list(plan.grid.settings(scenario.seed))
    rounds = scenario.training.rounds
    with stoppable(_STOPPING) as stop, progress("rounds") as bar:
        line = bar.add_task("calibrating", total=len(settings) * rounds)
        for setting in settings:
            if setting in points:
                forget(place, setting)
        for setting in settings:
            if setting in points:
                continue
            done = sum(one in points for one in settings)
            folder.status("running", points=len(settings), points_done=done)

            def watch(result: RoundResult, at: Setting = setting, done: int = done) -> None:
                words = (
                    f"point {done + 1} of {len(settings)}: sigma {at.sigma:g}, beta {at.beta:g}, "
                    f"accuracy {result.score.accuracy:.1f} %"
                )
                bar.update(line, completed=done * rounds + result.number, description=words)

            try:
                point = measure(scenario, setting, place, workers, stop, watch)
            except (BadInput, MissingExtra):
                raise
            except NoisemarketError as problem:  # the other points can still be measured
                problems.append(f"sigma {setting.sigma:g}, beta {setting.beta:g}: {problem}")
                continue
            if point is None:
                return True
            points.add(point)
            forget(place, setting)
            if stop():
                return any(one not in points for one in settings)
    return False


def _finish(
    folder: RunFolder,
    scenario: Scenario,
    plan: CalibrationPlan,
    points: Sequence[Point],
    missing: int,
) -> Calibration:
    """Fit, draw and write what has been measured, and say how the run stands."""
    wanted = len(plan.grid)
    result = calibrated(plan.name, plan.command, wanted, missing, points, plan.labels)
    folder.write_json("summary.json", result.summary(scenario))
    text = surface_file(result, scenario)
    if text is not None:
        folder.write_text(f"{plan.name}.toml", text)
    draw_calibration(folder, result)
    state = "incomplete" if missing else "complete"
    folder.status(state, points=wanted, points_done=wanted - missing)
    return result


def _show(folder: RunFolder, result: Calibration) -> None:
    out = console()
    out.print(calibration_table(result))
    for remark in result.remarks:
        out.print(remark, soft_wrap=True)
    out.print(f"Run folder: {folder.path}", soft_wrap=True)
    if result.fit is not None:
        surface = folder.path / f"{result.name}.toml"
        out.print(f"Surface: {surface} (use it by --set surface={surface})", soft_wrap=True)
    if result.points:
        names = ("surface.png", "accuracy.png")
        pictures = ", ".join(str(folder.path / "figures" / name) for name in names)
        out.print(f"Figures: {pictures}", soft_wrap=True)
