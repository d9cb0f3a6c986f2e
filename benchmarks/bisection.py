"""What bisection reaches of the exact equilibrium, how soon, and after changes; and how fast it is.

    python -m benchmarks bisection             # 20 seeds of populations, two minutes on two cores
    python -m benchmarks bisection --seeds 2   # a quick look
    python -m benchmarks bisection --million   # the command with 1,000,000 owners, nothing else

Results are stored in ``benchmarks/results``. All figures are the curator's gain over no trade, by
the contracts, in per cent of the exact signed equilibrium's under the preferences at the end: mean
over the seeds, least in brackets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import noisemarket as nm
from benchmarks.process_tree import negotiated
from noisemarket.machine import Effort

Table = dict[str, dict[str, dict[str, float]]]
"""Row, number of interactions, and mean and least over the populations."""

RESULTS = Path(__file__).parent / "results"
NAMES = {"bisection": "bisection", "dypp": "DyPP", "q_learning": "Q-learning"}
SHOWN = {
    "reached": {"bisection": [5, 10, 20], "dypp": [5_000], "q_learning": [5_000]},
    "recovered": {"bisection": [10, 25, 50], "dypp": [4_000]},
}
"""The columns of the tables in docs/explanation/mechanisms.md: mechanism and interactions."""

SURFACES = ("printed", "paper-mnist", "sharded-mnist", "features-mnist")
BETAS = {"distribution": "log_uniform", "low": 0.05, "high": 20.0}
CHANGED_AT = 1_000
CHANGES: dict[str, list[dict[str, Any]]] = {
    "costs halve": [{"scale": {"privacy_cost": 0.5}}],
    "costs of half of the owners halve": [{"share": 0.5, "scale": {"privacy_cost": 0.5}}],
    "costs double": [{"scale": {"privacy_cost": 2.0}}],
    "costs of half of the owners double": [{"share": 0.5, "scale": {"privacy_cost": 2.0}}],
    "quality is worth half": [{"who": "curator", "scale": {"quality_value": 0.5}}],
    "quality is worth twice": [{"who": "curator", "scale": {"quality_value": 2.0}}],
    "both changes of examples/changing.toml": [
        {"at": CHANGED_AT - 500, "share": 0.5, "scale": {"privacy_cost": 0.5}},
        {"who": "curator", "set": {"quality_value": 0.1}},
    ],
}


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


def recover(seeds: range, after: Sequence[int], mechanism: str) -> Table:
    """What is reached after a change, a row per change: all surfaces together."""
    table: Table = {}
    for name, parts in CHANGES.items():
        changes = [{"at": CHANGED_AT, **part} for part in parts]
        table[name] = {
            str(length): figures(
                [
                    share(
                        mechanism, seed, surface=surface, beta=BETAS, changes=changes,
                        iterations=CHANGED_AT + length,
                    )
                    for surface in SURFACES
                    for seed in seeds
                ]
            )
            for length in after
        }  # fmt: skip
    return table


def markdown(document: dict[str, Any], start: dict[str, list[int]], kind: str) -> str:
    """Some columns of the tables of one kind, ``reached`` or ``recovered``."""
    tables, heads, rows = document[kind], [], []
    counted = " interactions" if kind == "reached" else " interactions later"
    for mechanism, lengths in start.items():
        first, *others = (f"{length:,}" for length in lengths)
        heads += [f"{NAMES[mechanism]}, {first}{counted}", *others]
        counted = ""
    for name in tables["bisection"]:
        cells = [
            f"{one['mean']:.1f} ({one['least']:.1f})"
            for mechanism, lengths in start.items()
            for one in (tables[mechanism][name][str(length)] for length in lengths)
        ]
        title = f"`{name}`" if name in SURFACES else name
        rows.append(f"| {title} | {' | '.join(cells)} |")
    head = "surface" if kind == "reached" else "change"
    return "\n".join([f"| {head} | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|", *rows])


def million() -> list[dict[str, Any]]:
    """The whole command, run folder and exact answers and all, for a million owners."""
    out = []
    for more in ([], ["--set", "iterations=100"]):
        summary, took = negotiated(
            "--mechanism", "bisection", "--set", "model=cnn", "--set", "owners=1000000", *more
        )
        out.append(
            {
                "interactions": summary["iterations"],
                "seconds": round(took["wall_seconds"], 1),
                "cpu_seconds": round(took["cpu_seconds"], 1),
                "memory_gb": round(took["peak_gb"], 2),
                "share": summary["curator_gain"] / summary["equilibrium"]["curator_gain"],
            }
        )
        print(out[-1], flush=True)
    return out


def keep(out: Path, command: str, effort: Effort, found: dict[str, Any]) -> dict[str, Any]:
    """Write what was found, with what it took."""
    what = __doc__.splitlines()[0] if __doc__ else ""
    document = {"what": what, "command": command, **effort.as_dict(), **found}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return document


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    command, effort = f"benchmarks/bisection.py --seeds {given.seeds}", Effort()
    if given.million:
        out = given.out or RESULTS / "bisection-million.json"
        keep(out, "benchmarks/bisection.py --million", effort, {"runs": million()})
        return
    seeds = range(1, given.seeds + 1)
    reached = {"bisection": reach(seeds, (5, 10, 20, 100), "bisection")}
    for learner in ("dypp", "q_learning"):
        reached[learner] = reach(seeds, (100, 5_000), learner)
    recovered = {
        "bisection": recover(seeds, (10, 25, 50, 150), "bisection"),
        "dypp": recover(seeds, (150, 4_000), "dypp"),
    }
    found = {"reached": reached, "recovered": recovered}
    document = keep(given.out or RESULTS / "bisection.json", command, effort, found)
    for kind in found:
        print(markdown(document, SHOWN[kind], kind), end="\n\n")


if __name__ == "__main__":
    main()
