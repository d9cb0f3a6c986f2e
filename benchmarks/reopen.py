"""How DyPP recovers after all costs halve or double: as printed, with reopen, from a fresh start.

    python -m benchmarks reopen                20 seeds, 100 owners, 6,000 interactions each way

Every figure is the curator's gain over no trade as a share of the exact equilibrium's, under the
preferences after the change. ``reopen`` should reach 90 % of what a fresh start reaches in as many
interactions.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.value import worth
from noisemarket.machine import machine_in_words
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import RunOptions
from noisemarket.scenario import Scenario

RESULTS = Path(__file__).resolve().parent / "results"
CHANGES = {"halve": 0.5, "double": 2.0}
WAYS = ("as printed", "reopen", "fresh start")


def gain(environment: Environment, options: RunOptions, mechanism: str = "dypp") -> float:
    agreement = find_mechanism(mechanism).run(environment, options)
    return worth(environment, agreement.contracts).curator_gain


def efficiencies(seed: int, factor: float, owners: int, iterations: int) -> list[float]:
    """The share of the equilibrium's gain in each of ``WAYS``."""
    change = {"at": iterations, "scale": {"privacy_cost": factor}}
    scenario = Scenario.from_preset(
        "market", surface="printed", owners=owners, iterations=2 * iterations, seed=seed,
        changes=[change], reopen=False,
    )  # fmt: skip
    environment, printed = scenario.environment(), run_options(scenario)
    settings = replace(printed.play.settings, reopen=True)
    reopening = replace(printed, play=replace(printed.play, settings=settings))
    short = replace(printed, play=replace(printed.play, iterations=iterations))
    found = [
        gain(environment, printed),
        gain(environment, reopening),
        gain(environment.only(-1), short),
    ]
    best = gain(environment, printed, "equilibrium")
    return [one / best for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description="Recovery of DyPP after a change of costs.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--owners", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=6000)
    options = parser.parse_args()
    made = {"command": "python -m benchmarks reopen", "date": date.today().isoformat()}
    document: dict[str, object] = {**made, "machine": machine_in_words(), **vars(options)}
    for change, factor in CHANGES.items():
        rows = np.array(
            [
                efficiencies(seed, factor, options.owners, options.iterations)
                for seed in range(1, options.seeds + 1)
            ]
        )
        means = dict(zip(WAYS, rows.mean(axis=0).tolist(), strict=True))
        share = means["reopen"] / means["fresh start"]
        document[change] = means | {"reopen over fresh start": share}
        shown = ", ".join(f"{way} {100 * mean:.0f} %" for way, mean in means.items())
        print(f"costs {change}: {shown}; reopen reaches {100 * share:.0f} % of a fresh start")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "reopen.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
