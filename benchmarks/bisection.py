"""What bisection reaches of the exact equilibrium, how soon, and after changes; and how fast it is.

    python benchmarks/bisection.py             # 20 seeds of populations, two minutes on two cores
    python benchmarks/bisection.py --seeds 2   # a quick look
    python benchmarks/bisection.py --million   # the command with 1,000,000 owners, nothing else

All figures are the curator's gain over no trade, by the contracts, in per cent of the exact signed
equilibrium's under the preferences at the end: mean over the seeds, least in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

import noisemarket as nm

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


def cell(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.1f} ({min(values):.1f})"


def row(head: str, cells: Iterable[str]) -> None:
    print(f"| {head} | {' | '.join(cells)} |", flush=True)


def reach(seeds: range, lengths: Sequence[int], mechanism: str) -> None:
    """What is reached from the start, a row per surface."""
    row(f"{mechanism}, interactions", [f"{length:,}" for length in lengths])
    print("|---" * (1 + len(lengths)) + "|")
    for surface in SURFACES:
        shares = [
            [share(mechanism, seed, surface=surface, iterations=length) for seed in seeds]
            for length in lengths
        ]
        row(f"`{surface}`", map(cell, shares))


def recover(seeds: range, after: Sequence[int], mechanism: str) -> None:
    """What is reached after a change, a row per change: all surfaces together."""
    row(f"{mechanism}, interactions after the change", [f"{length:,}" for length in after])
    print("|---" * (1 + len(after)) + "|")
    for name, parts in CHANGES.items():
        changes = [{"at": CHANGED_AT, **part} for part in parts]
        shares = [
            [
                share(
                    mechanism, seed, surface=surface, beta=BETAS, changes=changes,
                    iterations=CHANGED_AT + length,
                )
                for surface in SURFACES
                for seed in seeds
            ]
            for length in after
        ]  # fmt: skip
        row(name, map(cell, shares))


def million() -> None:
    """The whole command, run folder and exact answers and all, for a million owners."""
    for more in ([], ["--set", "iterations=100"]):
        with tempfile.TemporaryDirectory() as scratch:
            command = [
                sys.executable, "-m", "noisemarket", "negotiate", "--json", "--out",
                f"{scratch}/run", "--mechanism", "bisection", "--set", "model=cnn", "--set",
                "owners=1000000", *more,
            ]  # fmt: skip
            start = time.perf_counter()
            with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
                assert run.stdout is not None
                summary = json.loads(run.stdout.read())
                _, _, usage = os.wait4(run.pid, 0)
                run.returncode = 0
            wall = time.perf_counter() - start
        print(
            f"1,000,000 owners, {summary['iterations']:,} interactions: {wall:.0f} s, "
            f"{usage.ru_utime + usage.ru_stime:.0f} CPU s, {usage.ru_maxrss / 2**20:.2f} GB, "
            f"{100 * summary['curator_gain'] / summary['equilibrium']['curator_gain']:.2f} % of "
            f"the equilibrium's gain"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--million", action="store_true")
    given = parser.parse_args()
    if given.million:
        million()
        return
    seeds = range(1, given.seeds + 1)
    reach(seeds, (5, 10, 20, 100), "bisection")
    print()
    for learner in ("dypp", "q_learning"):
        reach(seeds, (100, 5_000), learner)
        print()
    recover(seeds, (10, 25, 50, 150), "bisection")
    print()
    recover(seeds, (150, 4_000), "dypp")


if __name__ == "__main__":
    main()
