"""``noisemarket run`` of a season: jobs one after another, with the same owners and ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisemarket.cli.common import new_folder, paths, show
from noisemarket.cli.run import SEASON, Choices, chosen, complete, reopen, start
from noisemarket.errors import BadInput

if TYPE_CHECKING:
    from noisemarket.game.environment import Environment
    from noisemarket.market.orders import PreparedMarket
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import Scenario

OWNERS = "consortium"
"""The owners of a season, in its folder, unless the user names another one."""


def start_season(
    scenario: Scenario, given: Choices, out: str | None, overwrite: bool, file: str | None,
    workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Open a folder for a season and run its jobs. Baselines are trained on request only."""
    choices = chosen(scenario, given | {"baselines": given["baselines"] or False}, {})
    folder = new_folder(scenario, "season", out, overwrite, file, **choices)
    folder.write_json(SEASON, [])
    _jobs(folder, scenario, choices, workers, as_json)


def resume_season(path: Path, workers: int | None, as_json: bool) -> None:
    """Go on with the first job that is not complete."""
    from noisemarket.market.run_folder import SCENARIO, RunFolder, read_status
    from noisemarket.scenario import load_scenario

    scenario, noted = load_scenario(path / SCENARIO), read_status(path)
    choices = chosen(scenario, {"engine": None, "draws": None, "baselines": None}, noted)
    _jobs(RunFolder.reopen(path, **choices), scenario, choices, workers, as_json)


def _jobs(
    folder: RunFolder, scenario: Scenario, choices: Choices, workers: int | None, as_json: bool
) -> None:
    from noisemarket.market.job import NobodySigned
    from noisemarket.scenario.load import jobs_of
    from noisemarket.show import season_report as report

    root = Path(choices.get("owners_folder", folder.path.absolute() / OWNERS))
    given = {**choices, "owners_folder": str(root), "renew": True}
    rows: list[dict[str, Any]] = []
    earlier: list[Environment] = []
    with folder:
        for number, (name, job) in enumerate(jobs_of(scenario), start=1):
            path = folder.path / "jobs" / f"{number:02d}"
            opened = _open(path, job, given, workers)
            market = opened[1]
            if job.learning.carry_over:
                market = after(market, earlier)
            earlier.append(opened[1].environment)
            summary = _done(path)
            if summary is None:
                try:
                    _, summary, *_ = complete(opened[0], market, given, workers, folder.path)
                except NobodySigned as problem:
                    rows.append(report.nothing(name, len(market.environment), str(problem)))
                    break
            else:
                opened[0].__exit__(None, None, None)
            report.note_accounts(opened[0], root)
            rows.append(report.row(name, summary, opened[0].path))
            folder.write_json(SEASON, rows)
        folder.write_json(SEASON, rows)
        folder.write_text("season.csv", report.season_csv(rows))
        figures = report.draw_season(folder.path / "figures", rows)
        folder.status("complete", jobs=len(rows))
    said = [f"Job {row['job']}: {row['problem']}" for row in rows if row["problem"]]
    said += [*paths(folder, figures), f"Owners and their wallets: noisemarket owner account {root}"]
    show(as_json, {"jobs": rows}, report.season_table(rows), *said)


def _open(
    path: Path, job: Scenario, given: Choices, workers: int | None
) -> tuple[RunFolder, PreparedMarket, Choices]:
    """A job's folder, new or as it was left, and its market."""
    from noisemarket.market.run_folder import SCENARIO

    if (path / SCENARIO).exists():
        return reopen(path, given)
    return start(job, given, str(path), True, None, workers)


def _done(path: Path) -> dict[str, Any] | None:
    """The summary of a job that is complete."""
    file = path / "summary.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def after(market: PreparedMarket, earlier: Sequence[Environment]) -> PreparedMarket:
    """A market whose learners go on from the jobs before: one long game, of which this job is the
    last part. The owners' floors are those of today throughout."""
    environment, length = market.environment, market.scenario.learning.iterations
    phases = []
    for number, one in enumerate([*earlier, environment]):
        same = list(one.population.names) == list(environment.population.names)
        if not same or one.levels != environment.levels:
            remedy = "needs the same owners and the same levels in all jobs: set it to false."
            raise BadInput("learning.carry_over", True, remedy)
        phases += [replace(phase, start=phase.start + number * length) for phase in one.phases]
    learning = market.scenario.learning.model_copy(
        update={"iterations": length * (len(earlier) + 1)}
    )
    scenario = market.scenario.model_copy(update={"learning": learning})
    return replace(
        market, scenario=scenario, environment=replace(environment, phases=tuple(phases))
    )
