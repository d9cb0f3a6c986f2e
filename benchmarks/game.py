"""How fast the pricing game runs: one script, everything compared within one run.

    python -m benchmarks game                  throughput, exactness, start-up, scaling (1 minute)
    python -m benchmarks game --quick          the loop's throughput only, shortly; stores nothing
    python -m benchmarks game --million        also the command with 1,000,000 owners (3 minutes)

Needs ``pip install 'noisemarket[bench]'`` for the comparison with OpenSpiel. Speeds are per CPU
second (``time.process_time``), best of several rounds in which both sides take turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process_tree import negotiated
from benchmarks.results_page.common import Document, keep, made_by, table
from noisemarket.game.environment import Environment
from noisemarket.game.exploitability import exploitability
from noisemarket.machine import Effort, machine_in_words
from noisemarket.market.negotiation import run_options
from noisemarket.pricing.dypp import PlayConfig, play_batch
from noisemarket.pricing.learning import Batch
from noisemarket.scenario import Scenario

MOVING_STEP = 1e6  # policy steps of a millionth: no row ever settles
CONTESTS: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("market, reopen on", "market", 5_000, {"reopen": True}),
    ("market, reopen off", "market", 5_000, {"reopen": False}),
    ("paper, policies still move", "paper", 5_000, {"step_start": MOVING_STEP}),
    ("paper, settled", "paper", 50_000, {}),
)
"""Name, preset, iterations, and changed settings of the rule."""


def config_of(scenario: Scenario, iterations: int, **changed: Any) -> PlayConfig:
    config = replace(run_options(scenario).play, iterations=iterations)
    return replace(config, settings=replace(config.settings, **changed))


def play(environment: Environment, config: PlayConfig) -> Batch:
    return play_batch("wolf_phc", config, [environment.games()], [0], environment.population.key)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


class OpenSpielPair:
    """One owner and the curator as two OpenSpiel WoLF-PHC agents on the same payoff tables."""

    def __init__(self, environment: Environment, *, moving: bool) -> None:
        from open_spiel.python import rl_environment, rl_tools
        from open_spiel.python.algorithms.wolf_phc import WoLFPHC, WoLFSchedule

        games = environment.games()
        self.owner_rewards = games.owner_rewards[0].tolist()
        self.curator_rewards = games.curator_rewards[0].tolist()
        savings, payments = games.owner_rewards[0].shape
        # The paper's step 1/(50 + t/50) is 50/(2500 + t) in OpenSpiel's form t0/(t + t1).
        win, lose, offset = (1.0, 2.0, MOVING_STEP) if moving else (50.0, 100.0, 2500.0)
        self.agents = [
            WoLFPHC(
                player,
                actions,
                step_size=rl_tools.ConstantSchedule(0.1),
                epsilon_schedule=rl_tools.ConstantSchedule(0.0),
                delta_w=WoLFSchedule(win, offset),
                delta_l=WoLFSchedule(lose, offset),
                discount_factor=0.8,
            )
            for player, actions in enumerate((savings, payments))
        ]
        self.legal = [list(range(savings)), list(range(payments))]
        self.TimeStep, self.StepType = rl_environment.TimeStep, rl_environment.StepType
        self.saving, self.payment = 0, 0
        self.rewards: list[float] | None = None

    def play(self, iterations: int) -> None:
        for _ in range(iterations):
            first = self.rewards is None
            step = self.TimeStep(
                observations={
                    "info_state": [[self.payment], [self.saving]],
                    "legal_actions": self.legal,
                },
                rewards=self.rewards,
                discounts=[0.8, 0.8],
                step_type=self.StepType.FIRST if first else self.StepType.MID,
            )
            self.saving = int(self.agents[0].step(step).action)
            self.payment = int(self.agents[1].step(step).action)
            self.rewards = [
                self.owner_rewards[self.saving][self.payment],
                self.curator_rewards[self.saving][self.payment],
            ]


def throughput(rounds: int, share: int = 1) -> list[dict[str, object]]:
    """Interactions of a pair per CPU second; on the paper's game in turns with OpenSpiel's."""
    rows: list[dict[str, object]] = []
    for name, preset, iterations, changed in CONTESTS:
        scenario = Scenario.from_preset(preset, owners=100)
        iterations //= share
        environment, config = scenario.environment(), config_of(scenario, iterations, **changed)
        play(environment, replace(config, iterations=10))
        other = None
        if preset == "paper" and find_spec("open_spiel"):
            other = OpenSpielPair(environment, moving="step_start" in changed)
            other.play((500 if changed else 4_000) // share)
        ours, theirs = [], []
        for _ in range(rounds):
            spent = cpu_seconds(partial(play, environment, config))
            ours.append(len(environment) * iterations / spent)
            if other is not None:
                theirs.append(2_000 // share / cpu_seconds(partial(other.play, 2_000 // share)))
        row: dict[str, object] = {"setting": name, "noisemarket_per_cpu_second": max(ours)}
        if theirs:
            row |= {"open_spiel_per_cpu_second": max(theirs), "ratio": max(ours) / max(theirs)}
        rows.append(row)
    return rows


def exact_answers() -> list[dict[str, object]]:
    """Microseconds a pair for both sides' exact exploitability."""
    rows: list[dict[str, object]] = []
    for preset in ("paper", "market"):
        scenario = Scenario.from_preset(preset, owners=2_000)
        environment = scenario.environment()
        games = environment.games()
        batch = play(environment, config_of(scenario, 2_000))
        last = batch.last
        policies = batch.owner_policies, batch.curator_policies
        exploitability(*(p[:2] for p in policies), _first(games, 2), last[:2], 0.8)
        solve = partial(exploitability, *policies, games, last, 0.8)
        best = min(cpu_seconds(solve) for _ in range(3))
        rows.append({"preset": preset, "microseconds_per_pair": 1e6 * best / len(games)})
    return rows


def _first(games: object, n: int) -> object:
    fields = {name: getattr(games, name) for name in games.__dataclass_fields__}
    return type(games)(**{k: v[:n] if isinstance(v, np.ndarray) else v for k, v in fields.items()})


def start_up() -> dict[str, float]:
    """Wall seconds of whole commands, best of three, compiled code already in the cache."""
    command = [sys.executable, "-m", "noisemarket"]
    with tempfile.TemporaryDirectory() as scratch:
        out = str(Path(scratch) / "run")
        negotiate = [*command, "negotiate", "--out", out, "--overwrite"]
        subprocess.run(negotiate, check=True, capture_output=True)
        return {
            "help_seconds": min(_wall([*command, "--help"]) for _ in range(3)),
            "negotiate_100_owners_5000_iterations_seconds": min(_wall(negotiate) for _ in range(3)),
        }


def _wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def scaling() -> list[dict[str, object]]:
    """CPU seconds over owners and over iterations: both lines should be straight."""
    rows: list[dict[str, object]] = []
    sizes = [(n, 5_000) for n in (1_000, 10_000, 100_000)]
    sizes += [(1_000, t) for t in (20_000, 100_000)]
    for owners, iterations in sizes:
        usage, wall = _negotiate_in_child(owners, iterations)
        rows.append({"owners": owners, "iterations": iterations, "wall_seconds": wall, **usage})
    return rows


_CHILD = """
import sys, time, resource, json
import noisemarket as nm
owners, iterations = map(int, sys.argv[1:])
nm.negotiate(nm.Scenario.from_preset("market", owners=4, iterations=10))
cpu, wall, said = time.process_time(), time.perf_counter(), [0.0]
def watch(p):
    if owners >= 100_000 and time.perf_counter() - said[0] > 5:
        said[0] = time.perf_counter()
        print(f"  {p.done:,} of {p.total:,} owners", file=sys.stderr, flush=True)
scenario = nm.Scenario.from_preset("market", owners=owners, iterations=iterations)
r = nm.negotiate(scenario, watch=watch)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps({"cpu_seconds": cpu, "wall": wall, "mean_saving": r.learned.mean_saving,
                  "curator_gain": r.learned.curator_gain,
                  "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
"""


def million() -> dict[str, object]:
    """The whole command, run folder and all, for a million owners; its progress is shown."""
    owners, iterations = 1_000_000, 5_000
    summary, took = negotiated("--set", f"owners={owners}", "--set", f"iterations={iterations}")
    return {
        "owners": owners,
        "iterations": iterations,
        **took,
        "mean_saving": summary["mean_saving"],
        "curator_gain": summary["curator_gain"],
    }


def _negotiate_in_child(owners: int, iterations: int) -> tuple[dict[str, float], float]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(owners), str(iterations)],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    usage = json.loads(done.stdout)
    return usage, usage.pop("wall")


def markdown(found: Document) -> str:
    """The part of benchmarks/README.md."""
    rows = [
        [row["setting"], f"{row['noisemarket_per_cpu_second'] / 1e6:.1f} million",
         f"{row['open_spiel_per_cpu_second']:,.0f}", f"{row['ratio']:,.0f}"]
        for row in found["throughput"] if "ratio" in row
    ]  # fmt: skip
    heads = ["WoLF-PHC", "noisemarket", f"OpenSpiel {found['open_spiel']}", "ratio"]
    return (
        f"{table(heads, rows)}\n\n"
        f"Best of {found['rounds']} rounds, by {made_by(found)} on {found['date']} "
        f"({found['machine']})."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--million", action="store_true", help="also 1,000,000 owners x 5,000")
    parser.add_argument("--quick", action="store_true", help="a short loop only; stores nothing")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the throughput contest")
    options = parser.parse_args()
    effort = Effort()
    found: dict[str, Any] = {"rounds": options.rounds}
    print(f"Machine: {machine_in_words()}\n")

    found["throughput"] = rows = throughput(1, 10) if options.quick else throughput(options.rounds)
    print("WoLF-PHC, 13 x 33 levels, interactions of a pair per CPU second")
    for row in rows:
        beside = "not installed, or another game"
        if "ratio" in row:
            beside = f"{row['open_spiel_per_cpu_second']:,.0f}, ratio {row['ratio']:,.0f}"
        ours = f"{row['noisemarket_per_cpu_second']:>13,.0f}"
        print(f"  {row['setting']:28} noisemarket {ours}   OpenSpiel {beside}")
    if options.quick:
        return
    found["exploitability"] = rows = exact_answers()
    print("\nExact exploitability of both sides, microseconds a pair")
    for row in rows:
        print(f"  {row['preset']:18} {row['microseconds_per_pair']:.1f}")
    found["start_up"] = times = start_up()
    print("\nWhole commands, wall seconds, compiled code cached")
    print(f"  --help {times['help_seconds']:.2f}")
    print(f"  negotiate {times['negotiate_100_owners_5000_iterations_seconds']:.2f}")

    found["scaling"] = rows = scaling()
    if options.million:
        rows.append(million())
    print("\nWhole negotiations (market preset, exploitability included)")
    print("     owners  iterations      CPU s     wall s    ns/pair-iter   peak GB")
    for row in rows:
        per = 1e9 * float(row["cpu_seconds"]) / (int(row["owners"]) * int(row["iterations"]))
        print(
            f"  {row['owners']:>9,}  {row['iterations']:>10,}  {row['cpu_seconds']:>9.2f}  "
            f"{row['wall_seconds']:>9.2f}  {per:>14.1f}  {row['peak_gb']:>8.2f}"
        )
    if find_spec("open_spiel") is None:
        raise SystemExit("Nothing is stored without OpenSpiel: install the extra bench.")
    command = (
        f"python -m benchmarks game --rounds {options.rounds}" + " --million" * options.million
    )
    keep("game", __doc__, command, effort, found | {"open_spiel": version("open_spiel")})


if __name__ == "__main__":
    main()
