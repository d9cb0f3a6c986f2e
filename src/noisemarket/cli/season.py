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
    from noisemarket.game.environment import Phase
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
    told: dict[str, str] = {}
    earlier: list[PreparedMarket] = []
    currency = scenario.market.currency
    with folder:
        for number, (name, job) in enumerate(jobs_of(scenario), start=1):
            path = folder.path / "jobs" / f"{number:02d}"
            opened = _open(path, job, given, workers)
            market = opened[1]
            if job.learning.carry_over:
                market = after(market, earlier)
            summary = _done(path)
            if summary is None:
                try:
                    _, summary, *_ = complete(opened[0], market, given, workers, folder.path)
                except NobodySigned as problem:
                    rows.append(report.nothing(name, len(market.environment), str(problem)))
                    break
            else:
                opened[0].__exit__(None, None, None)
            earlier.append(as_played(opened[1], path))
            for one in report.note_accounts(opened[0], root):
                told.setdefault(one, name)
            rows.append(report.row(name, summary, opened[0].path))
            folder.write_json(SEASON, rows)
        folder.write_json(SEASON, rows)
        folder.write_text("season.csv", report.season_csv(rows))
        figures = report.draw_season(folder.path / "figures", rows, currency)
        folder.status("complete", jobs=len(rows))
    said = [f"Job {name}: {one}" for one, name in told.items()]
    said += [f"Job {row['job']}: {row['problem']}" for row in rows if row["problem"]]
    said += [
        *paths(folder, figures),
        f"Owners and their wallets: noisemarket owner account {root}",
        f"To see the contracts of all jobs: noisemarket ledger ls {root}",
    ]
    show(as_json, {"currency": currency, "jobs": rows}, report.season_table(rows, currency), *said)


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


def as_played(market: PreparedMarket, path: Path) -> PreparedMarket:
    """The market of a job with the floors that its owners had when it began."""
    import numpy as np

    from noisemarket.market.run_folder import LASTING, MarketFolder

    file, population = MarketFolder(path).owners / LASTING, market.environment.population
    if not file.exists():  # over Flower owners keep their floors to themselves
        return market
    known = json.loads(file.read_text(encoding="utf-8"))["floors"]
    least = [min(known[str(name)], market.scenario.game.sigma_max) for name in population.names]
    population = replace(population, floor=np.array(least))
    return replace(market, environment=replace(market.environment, population=population))


def after(market: PreparedMarket, earlier: Sequence[PreparedMarket]) -> PreparedMarket:
    """A market whose learners go on from the jobs before: one long game, of which this job is the
    last part. What comes before is played again: as it was, bit by bit, but over Flower, where
    owners keep their floors to themselves, with the floors of today."""
    environment, scenario = market.environment, market.scenario
    length = scenario.learning.iterations
    phases: list[Phase] = []
    for number, one in enumerate([*earlier, market]):
        then, said = one.environment, one.scenario
        same = list(then.population.names) == list(environment.population.names)
        same &= (said.seed, said.learning) == (scenario.seed, scenario.learning)
        same &= length % said.learning.interactions_per_message == 0
        if not same or then.levels != environment.levels:
            remedy = (
                "needs the same owners, levels, seed and learning in all jobs, and iterations in "
                "whole messages: set it to false."
            )
            raise BadInput("learning.carry_over", True, remedy)
        floor = None if one is market else then.population.floor
        phases += [
            replace(phase, start=phase.start + number * length, floor=floor)
            for phase in then.phases
        ]
    learning = scenario.learning.model_copy(update={"iterations": length * (len(earlier) + 1)})
    return replace(
        market,
        scenario=scenario.model_copy(update={"learning": learning}),
        environment=replace(environment, phases=tuple(phases)),
    )
