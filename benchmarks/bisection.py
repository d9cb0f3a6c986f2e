"""What bisection reaches of the exact equilibrium, how soon, and how fast it is.

    python -m benchmarks bisection             # 20 seeds of populations, a minute on two cores
    python -m benchmarks bisection --seeds 2   # a quick look
    python -m benchmarks bisection --million   # the command with 1,000,000 owners, nothing else

Results are stored in ``benchmarks/results``. All figures are the curator's gain over no trade, by
the contracts, in per cent of the exact signed equilibrium's under the preferences at the end: mean
over the seeds, least in brackets.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import noisemarket as nm
from benchmarks.process_tree import negotiated
from benchmarks.results_page.common import keep
from noisemarket.machine import Effort

Table = dict[str, dict[str, dict[str, float]]]
"""Row, number of interactions, and mean and least over the populations."""

NAMES = {"bisection": "bisection", "dypp": "DyPP", "q_learning": "Q-learning"}
SHOWN = {"bisection": [5, 10, 20], "dypp": [5_000], "q_learning": [5_000]}
"""The columns of the table in benchmarks/README.md: mechanism and interactions."""

SURFACES = ("printed", "paper-mnist", "sharded-mnist", "features-mnist")


def share(mechanism: str, seed: int, **settings: Any) -> float:
    """The curator's gain in per cent of the equilibrium's; 100 where neither gains."""
    scenario = nm.Scenario.from_preset("market", seed=seed, **settings)
    result = nm.negotiate(scenario, mechanism=mechanism)
    gain, exact = result.learned.curator_gain, result.equilibrium.curator_gain
    return 100.0 * gain / exact if exact > 0.0 else 100.0 - gain


def figures(values: Sequence[float]) -> dict[str, float]:
    return {"mean": sum(values) / len(values), "least": min(values)}


def reach(seeds: range, lengths: Sequence[int], mechanism: str) -> Table:
    """What is reached from the start, a row per surface."""
    return {
        surface: {
            str(length): figures(
                [share(mechanism, seed, surface=surface, iterations=length) for seed in seeds]
            )
            for length in lengths
        }
        for surface in SURFACES
    }


def markdown(reached: dict[str, Table], shown: dict[str, list[int]]) -> str:
    """Some columns of the tables of ``reach``, by mechanism."""
    heads, rows, counted = [], [], " interactions"
    for mechanism, lengths in shown.items():
        first, *others = (f"{length:,}" for length in lengths)
        heads += [f"{NAMES[mechanism]}, {first}{counted}", *others]
        counted = ""
    for surface in SURFACES:
        cells = [
            f"{one['mean']:.1f} ({one['least']:.1f})"
            for mechanism, lengths in shown.items()
            for one in (reached[mechanism][surface][str(length)] for length in lengths)
        ]
        rows.append(f"| `{surface}` | {' | '.join(cells)} |")
    return "\n".join([f"| surface | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|", *rows])


def million() -> dict[str, Any]:
    """The whole command, run folder and exact answers and all, for a million owners."""
    summary, took = negotiated(
        "--mechanism", "bisection", "--set", "model=cnn", "--set", "owners=1000000"
    )
    found = {
        "cpu_seconds": round(took["cpu_seconds"], 1),
        "memory_gb": round(took["peak_gb"], 2),
        "share": summary["curator_gain"] / summary["equilibrium"]["curator_gain"],
    }
    print(found, flush=True)
    return found


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--million", action="store_true")
    given = parser.parse_args()
    command, effort = "python -m benchmarks bisection", Effort()
    if given.million:
        found = {"run": million()}
        keep("bisection-million", __doc__, f"{command} --million", effort, found)
        return
    seeds = range(1, given.seeds + 1)
    reached = {"bisection": reach(seeds, (5, 10, 20), "bisection")}
    for learner in ("dypp", "q_learning"):
        reached[learner] = reach(seeds, (5_000,), learner)
    command = f"{command} --seeds {given.seeds}"
    keep("bisection", __doc__, command, effort, {"reached": reached})
    print(markdown(reached, SHOWN))


if __name__ == "__main__":
    main()
