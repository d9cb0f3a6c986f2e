"""``noisemarket reproduce``: the paper's figures again, and its claims one by one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import progress, show, stoppable, writable_file
from noisemarket.errors import Interrupted


def reproduce(
    out: Annotated[
        str, Option(help="Folder for the page, figures and numbers.")
    ] = "runs/reproduction",
    page: Annotated[str | None, Option(help="File for the page; by default in the folder.")] = None,
    overwrite: opt.Overwrite = False,
    seeds: Annotated[int, Option(min=2, help="Seeds per learner and preset.")] = 20,
    owners: Annotated[int, Option(min=1, help="Owners per seed.")] = 100,
    iterations: Annotated[int, Option(min=100, help="Iterations per pair.")] = 10_000,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Reproduce the paper's two convergence figures and check its claims one by one."""
    from rich.table import Table

    from noisemarket.market.run_folder import RunFolder
    from noisemarket.show.reproduction_page import write_reproduction
    from noisemarket.study.reproduce import ADAPTING, CHANGES, LEARNERS, PRESETS, Study

    writable_file("--page", page)
    with RunFolder.create(out, "reproduction", overwrite=overwrite) as folder:
        total = seeds * (len(LEARNERS) * len(PRESETS) + len(ADAPTING) * len(CHANGES))
        with stoppable() as stop, progress("runs") as bar:
            line = bar.add_task("reproducing", total=total)

            def advance(preset: str, learner: str) -> None:
                bar.update(line, advance=1, description=f"reproducing, {preset}, {learner}")

            study = Study(seeds, owners, iterations, workers, advance, stop)
            trials, adaptations = list(study.trials()), list(study.adaptations())
        if len(trials) + len(adaptations) < total // seeds:
            folder.status("incomplete")
            raise Interrupted(f"stopped; {folder.path} holds no result (status: incomplete).")
        given = f"--seeds {seeds} --owners {owners} --iterations {iterations}"
        path = Path(page) if page else folder.path / "reproduction.md"
        verdicts = write_reproduction(
            folder, path, trials, adaptations, f"noisemarket reproduce {given}"
        )
        folder.status("complete")
    table = Table("claim", *PRESETS, title="The paper's claims", title_justify="left")
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        seen = {v.preset: v.seen for v in verdicts if v.claim == claim}
        table.add_row(claim, *(seen.get(preset, "-") for preset in PRESETS))
    where = f"Page: {path}\nFigures and numbers: {folder.path}"
    show(as_json, [asdict(verdict) for verdict in verdicts], table, where)
