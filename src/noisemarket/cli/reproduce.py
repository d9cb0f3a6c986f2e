"""``noisemarket reproduce``: the paper's figures again, and its claims one by one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import (
    command_line,
    load,
    new_folder,
    progress,
    show,
    step_done,
    stoppable,
    with_surface,
)
from noisemarket.cli.estimate import announce_games
from noisemarket.errors import Interrupted


def reproduce(
    context: typer.Context,
    file: Annotated[
        str | None,
        Argument(
            metavar="SCENARIO",
            help="SCENARIO is a TOML file with what differs from the preset: the claims are then "
            "checked on its owners, payoffs, loss surface and settings of learning, instead of on "
            "both presets with the paper's printed surface.",
        ),
    ] = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    seeds: Annotated[int, Option(min=2, help="Seeds per learner and scenario.")] = 20,
    seed: opt.Seed = None,
    out: Annotated[
        str, Option(help="Folder for the page, figures and numbers.")
    ] = "runs/reproduction",
    overwrite: opt.Overwrite = False,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Reproduce the paper's two convergence figures and check its claims one by one."""
    from rich.table import Table

    from noisemarket.market.run_folder import RunFolder
    from noisemarket.show.reproduction_page import PAGE, write_reproduction
    from noisemarket.show.style import name_of
    from noisemarket.study.reproduce import MARKET, VERDICTS, Study, own_game, presets

    kind = "reproduction"
    if file or preset:
        chosen = load(file, preset, settings, seed)
        scenario = own_game(with_surface(chosen, workers, out, overwrite))
        games = {Path(file).stem if file else scenario.preset: scenario}
        opened = new_folder(scenario, kind, out, overwrite, file)
    else:
        games = presets([*(settings or ()), *([] if seed is None else [f"seed={seed}"])])
        opened = RunFolder.create(out, kind, overwrite=overwrite, kind=kind)
    with opened as folder:
        with stoppable("Stopping: no result is kept.") as stop, progress("runs") as bar:
            line, played = bar.add_task("reproducing"), 0

            def advance(title: str, learner: str) -> None:
                nonlocal played
                played += 1
                bar.update(line, advance=1, description=f"reproducing, {title}, {name_of(learner)}")
                if played % seeds == 0:
                    step_done(bar, f"Played {played} of {study.runs}: {title}, {name_of(learner)}.")

            study = Study(games, seeds, workers, advance, stop)
            bar.update(line, total=study.runs)
            one = next(iter(games.values()))
            announce_games(study.runs, one.population.owners, one.learning.iterations, workers)
            trials, adaptations = list(study.trials()), list(study.adaptations())
        if len(trials) + len(adaptations) < study.runs // seeds:
            folder.status("incomplete")
            raise Interrupted(f"stopped; {folder.path} holds no result (status: incomplete).")
        verdicts = write_reproduction(folder, trials, adaptations, command_line(context))
        folder.status("complete")
    table = Table("claim", *games, title="The paper's claims", title_justify="left")
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        seen = {v.scenario: v.seen for v in verdicts if v.claim == claim}
        table.add_row(claim, *(seen.get(game, "-") for game in games))
    where = f"{VERDICTS}.\n"
    where += "" if file or preset else f"paper: the game as printed; {MARKET}.\n"
    where += f"Page: {folder.path / PAGE}\nFigures and numbers: {folder.path}"
    show(as_json, [asdict(verdict) for verdict in verdicts], table, where)
