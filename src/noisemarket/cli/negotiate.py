"""``noisemarket negotiate``: the game alone, with the distance to the exact answers."""

from __future__ import annotations

import json
import time
from pathlib import Path

from noisemarket.cli.app import NegotiateOptions
from noisemarket.cli.common import paths, progress, show, stoppable, writable_file
from noisemarket.errors import Interrupted
from noisemarket.files import write_atomic
from noisemarket.game.environment import Environment
from noisemarket.market.events import writing
from noisemarket.market.negotiation import Negotiation, run_options
from noisemarket.market.run_folder import RunFolder
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import Agreement, Mechanism
from noisemarket.pricing.mechanism import Progress as Done
from noisemarket.pricing.tables import contracts_csv
from noisemarket.scenario import Scenario
from noisemarket.show.negotiation_report import summary_table, write_run
from noisemarket.show.style import name_of

PARTIAL = "contracts.partial.csv"
EVENTS = "events.jsonl"
_FLUSH_SECONDS = 2.0


def run(options: NegotiateOptions) -> None:
    """Play, then write the run folder and print the summary."""
    scenario = options.load()
    if options.budget is not None and scenario.market.budget != "none":
        # a whole run leaves out the owners that the budget does not pay for
        options.only_with("joint", "--budget", options.budget, scenario)
    chosen = find_mechanism(scenario.mechanism)
    environment = scenario.environment()
    chosen.check(environment, run_options(scenario))
    writable_file("--contracts", options.contracts)
    with options.folder(scenario, scenario.mechanism) as folder:
        agreement = _play(chosen, options, scenario, environment, folder)
        result = Negotiation(scenario, environment, agreement)
        done = [int(i) for i in agreement.done.nonzero()[0]]
        figures = write_run(folder, result) if done else []
        if options.contracts is not None:
            write_atomic(Path(options.contracts), result.contracts_csv())
        folder.remove(PARTIAL)
        state = "complete" if agreement.complete else "incomplete"
        folder.status(state, owners=len(environment), owners_done=len(done))
    if not agreement.complete:
        raise Interrupted(
            f"stopped after {len(done)} of {len(environment)} owners; their contracts are in "
            f"{folder.path} (status: incomplete)."
        )
    show(options.json, result.summary(), summary_table(result), *paths(folder, figures))


def _play(
    chosen: Mechanism,
    options: NegotiateOptions,
    scenario: Scenario,
    environment: Environment,
    folder: RunFolder,
) -> Agreement:
    """Run the mechanism; finished owners are saved now and then, in case the run is killed."""
    finished: list[Done] = []
    flushed = time.monotonic()

    def flush() -> None:
        nonlocal flushed
        started = (folder.path / PARTIAL).exists()
        parts = [contracts_csv(environment, done.contracts, done.owners) for done in finished]
        rows = [text.partition("\n") for text in parts]
        head = [] if started else ["".join(rows[0][:2])]
        folder.append(PARTIAL, "".join(head + [row[2] for row in rows]), private=True)
        finished.clear()
        flushed = time.monotonic()

    with stoppable() as stop, progress("owners") as bar:
        line = bar.add_task(f"negotiating, {name_of(scenario.mechanism)}", total=len(environment))

        def watch(done: Done) -> None:
            bar.update(line, completed=done.done)
            finished.append(done)
            if time.monotonic() - flushed > _FLUSH_SECONDS:
                flush()

        told = writing(
            lambda line: folder.append(EVENTS, json.dumps(line) + "\n", private=True), watch
        )
        return chosen.run(environment, run_options(scenario, options.workers, told, stop))
