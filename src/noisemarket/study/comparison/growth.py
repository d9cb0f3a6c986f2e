"""How many processor seconds mechanisms take to decide as owners grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noisemarket.errors import Interrupted
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import find_mechanism
from noisemarket.scenario import Scenario
from noisemarket.study.comparison.decisions import as_compared

OWNERS = (10, 100, 1_000, 10_000)
PATIENCE = 5.0
"""Seconds after which a mechanism is not asked to serve more owners."""


@dataclass(frozen=True)
class Timing:
    """Processor seconds that a mechanism took to decide for so many owners."""

    mechanism: str
    owners: int
    seconds: float


def timings(
    scenario: Scenario,
    mechanisms: Sequence[str],
    *,
    owners: Sequence[int] = OWNERS,
    threads: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Timing]:
    """Time each mechanism on ever more owners drawn as the scenario's are; none from a file.

    Preferences do not change meanwhile: a change may name owners that smaller populations lack. The
    first run of each is not counted: it may compile.
    """
    if scenario.population.file:
        return []
    out = []
    for name in mechanisms:
        mechanism, warm, own = find_mechanism(name), False, as_compared(scenario, name)
        for count in owners:
            people = own.population.model_copy(update={"owners": count})
            market = own.market.model_copy(update={"target_accuracy": "none"})
            changed = {"population": people, "market": market, "changes": ()}
            sized = own.model_copy(update=changed)
            environment, options = sized.environment(), run_options(sized, threads, stop=stop)
            if not warm:
                mechanism.run(environment, options)
                warm = True
            start = time.process_time()
            mechanism.run(environment, options)
            took = time.process_time() - start
            if stop():
                raise Interrupted("stopped; what was finished is kept.")
            out.append(Timing(name, count, took))
            if took > PATIENCE:
                break
    return out
