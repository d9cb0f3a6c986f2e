"""``noisemarket reproduce``: the paper's figures again, and its claims one by one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from noisemarket.cli.app import ReproduceOptions
from noisemarket.cli.common import progress, show, stoppable, writable_file
from noisemarket.errors import Interrupted
from noisemarket.market.run_folder import RunFolder
from noisemarket.show.reproduction_page import write_reproduction
from noisemarket.study.reproduce import ADAPTING, CHANGES, LEARNERS, PRESETS, Study


def run(options: ReproduceOptions) -> None:
    """Run all trials, then write figures, numbers and page."""
    seeds, owners, iterations = options.seeds, options.owners, options.iterations
    writable_file("--page", options.page)
    with RunFolder.create(options.out, "reproduction", overwrite=options.overwrite) as folder:
        total = seeds * (len(LEARNERS) * len(PRESETS) + len(ADAPTING) * len(CHANGES))
        with stoppable() as stop, progress("runs") as bar:
            line = bar.add_task("reproducing", total=total)

            def advance(preset: str, learner: str) -> None:
                bar.update(line, advance=1, description=f"reproducing, {preset}, {learner}")

            study = Study(seeds, owners, iterations, options.workers, advance, stop)
            trials, adaptations = list(study.trials()), list(study.adaptations())
        if len(trials) + len(adaptations) < total // seeds:
            folder.status("incomplete")
            raise Interrupted(f"stopped; {folder.path} holds no result (status: incomplete).")
        given = f"--seeds {seeds} --owners {owners} --iterations {iterations}"
        path = Path(options.page) if options.page else folder.path / "reproduction.md"
        verdicts = write_reproduction(
            folder, path, trials, adaptations, f"noisemarket reproduce {given}"
        )
        folder.status("complete")
    table = Table("claim", *PRESETS, title="The paper's claims", title_justify="left")
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        seen = {v.preset: v.seen for v in verdicts if v.claim == claim}
        table.add_row(claim, *(seen.get(preset, "-") for preset in PRESETS))
    where = f"Page: {path}\nFigures and numbers: {folder.path}"
    show(options.json, [asdict(verdict) for verdict in verdicts], table, where)
