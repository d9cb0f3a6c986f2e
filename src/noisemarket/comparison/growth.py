"""How long mechanisms take to decide as owners grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noisemarket.errors import Interrupted
from noisemarket.mechanisms import find_mechanism
from noisemarket.negotiation import run_options
from noisemarket.scenario import Scenario

OWNERS = (10, 100, 1_000, 10_000)
PATIENCE = 5.0
"""Seconds after which a mechanism is not asked to serve more owners."""


@dataclass(frozen=True)
class Timing:
    """How long a mechanism took to decide for so many owners."""

    mechanism: str
    owners: int
    seconds: float


def timings(
    scenario: Scenario,
    mechanisms: Sequence[str],
    *,
    owners: Sequence[int] = OWNERS,
    patience: float = PATIENCE,
    threads: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Timing]:
    """Time each mechanism on ever more owners drawn as the scenario's are; none from a file.

    The first run of each is not counted: it may compile.
    """
    if scenario.population.file:
        return []
    out = []
    for name in mechanisms:
        mechanism, warm = find_mechanism(name), False
        for count in owners:
            people = scenario.population.model_copy(update={"owners": count})
            market = scenario.market.model_copy(update={"target_accuracy": "none"})
            sized = scenario.model_copy(update={"population": people, "market": market})
            environment, options = sized.environment(), run_options(sized, threads, stop=stop)
            if not warm:
                mechanism.run(environment, options)
                warm = True
            start = time.perf_counter()
            mechanism.run(environment, options)
            took = time.perf_counter() - start
            if stop():
                raise Interrupted("stopped; what was finished is kept.")
            out.append(Timing(name, count, took))
            if took > patience:
                break
    return out
