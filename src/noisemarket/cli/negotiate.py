"""``noisemarket negotiate``: the game alone, with the distance to the exact answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import (
    load,
    new_folder,
    only_with,
    paths,
    progress,
    show,
    stoppable,
    with_surface,
)
from noisemarket.errors import Interrupted

if TYPE_CHECKING:
    from noisemarket.game.environment import Environment
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.pricing.mechanism import Agreement, Mechanism
    from noisemarket.pricing.mechanism import Progress as Done
    from noisemarket.scenario import Scenario


def negotiate(
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    mechanism: opt.Mechanism = None,
    budget: opt.Budget = None,
    target_accuracy: opt.TargetAccuracy = None,
    seed: opt.Seed = None,
    figures: Annotated[bool, Option("--figures", help="Also draw the game.")] = False,
    out: opt.Out = None,
    overwrite: opt.Overwrite = False,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Play the pricing game and compare the result with the exact equilibrium."""
    from noisemarket.market.negotiation import Negotiation, run_options
    from noisemarket.market.orders import with_caps
    from noisemarket.pricing import find_mechanism
    from noisemarket.scenario.surface_file import find_surface
    from noisemarket.show.negotiation_report import summary_table, write_run

    scenario = load(
        file, preset, settings, seed,
        mechanism=mechanism, budget=budget, target_accuracy=target_accuracy,
    )  # fmt: skip
    if budget is not None and scenario.market.budget != "none":
        # a whole run leaves out the owners that the budget does not pay for
        only_with("joint", "--budget", budget, scenario)
    chosen = find_mechanism(scenario.mechanism)
    environment = with_caps(scenario)
    chosen.check(environment, run_options(scenario))
    scenario = with_surface(scenario, workers, out, overwrite)
    environment = replace(environment, surface=find_surface(scenario.surface_name()))
    stem = scenario.mechanism
    with new_folder(scenario, "negotiate", out, overwrite, file, stem=stem) as folder:
        agreement = _play(chosen, scenario, environment, folder, workers)
        result = Negotiation(scenario, environment, agreement)
        done = [int(i) for i in agreement.done.nonzero()[0]]
        drawn = write_run(folder, result, figures=figures) if done else []
        state = "complete" if agreement.complete else "incomplete"
        folder.status(state, owners=len(environment), owners_done=len(done))
    if not agreement.complete:
        raise Interrupted(
            f"stopped after {len(done)} of {len(environment)} owners; their contracts are in "
            f"{folder.path} (status: incomplete)."
        )
    if as_json:
        show(as_json, result.summary())
        return
    said = [] if agreement.contracts.saving.any() else [result.why_nothing()]
    show(as_json, None, summary_table(result), *said, *paths(folder, drawn))


def _play(
    chosen: Mechanism,
    scenario: Scenario,
    environment: Environment,
    folder: RunFolder,
    workers: int | None,
) -> Agreement:
    """Run the mechanism, and note its progress."""
    from noisemarket.market.events import writing
    from noisemarket.market.negotiation import run_options
    from noisemarket.show.style import name_of

    with stoppable() as stop, progress("owners") as bar:
        line = bar.add_task(f"negotiating, {name_of(scenario.mechanism)}", total=len(environment))

        def watch(done: Done) -> None:
            bar.update(line, completed=done.done)

        def note(line: object) -> None:
            folder.append("events.jsonl", json.dumps(line) + "\n", private=True)

        told = writing(note, watch)
        return chosen.run(environment, run_options(scenario, workers, told, stop))
