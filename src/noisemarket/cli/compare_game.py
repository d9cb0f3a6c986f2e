"""``noisemarket compare --game-only``: what is agreed on one population, without training."""

from __future__ import annotations

import json
from collections.abc import Mapping

from noisemarket.cli.common import (
    Request,
    console,
    keep_scenario,
    names_of,
    print_paths,
    progress,
    stoppable,
)
from noisemarket.errors import BadInput, Interrupted
from noisemarket.mechanisms import MECHANISMS, find_mechanism
from noisemarket.negotiation import Negotiation, run_options
from noisemarket.report.comparison_report import comparison_rows, comparison_table, write_comparison
from noisemarket.report.style import name_of


def run(request: Request, mechanisms: str | None, others: Mapping[str, object]) -> None:
    """Run every mechanism, then write the run folder and print the table."""
    for option, value in others.items():
        if value is not None:
            raise BadInput(option, str(value), "is for trained comparisons: leave out --game-only.")
    scenario = request.scenario()
    names = names_of(mechanisms) or list(MECHANISMS)
    environment = scenario.environment()
    for name in names:
        try:
            find_mechanism(name).check(environment, run_options(scenario))
        except BadInput as bad:
            remedy = f"{bad.remedy[:-1]}, or leave {name} out of --mechanisms."
            raise BadInput(bad.field, bad.value, remedy) from None
    with request.folder(scenario, f"{scenario.preset}-compare") as folder:
        keep_scenario(folder, scenario)
        results: dict[str, Negotiation] = {}
        with stoppable() as stop, progress("mechanisms") as bar:
            line = bar.add_task("comparing", total=len(names))
            for name in names:
                bar.update(line, description=f"comparing, {name_of(name)}")
                named = scenario.model_copy(update={"mechanism": name})
                options = run_options(named, request.threads, stop=stop)
                agreed = find_mechanism(name).run(environment, options)
                results[name] = Negotiation(named, environment, agreed)
                bar.advance(line)
                if stop():
                    break
        complete = [name for name, result in results.items() if result.agreement.complete]
        results = {name: results[name] for name in complete}
        rows = comparison_rows(results)
        figures = write_comparison(folder, rows) if rows else []
        state = "complete" if len(complete) == len(names) else "incomplete"
        folder.status(state, mechanisms=names, mechanisms_done=complete)
    if state == "incomplete":
        raise Interrupted(
            f"stopped after {len(complete)} of {len(names)} mechanisms; their results are in "
            f"{folder.path} (status: incomplete)."
        )
    if request.json:
        print(json.dumps({"seed": scenario.seed, "mechanisms": rows}, allow_nan=False))
        return
    console().print(comparison_table(rows))
    print_paths(folder, figures)
