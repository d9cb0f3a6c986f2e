"""How fast mechanisms are with many owners, and how they hold up when owners answer badly.

python benchmarks/mechanisms.py              speed and memory, each in a process of its own
python benchmarks/mechanisms.py --behaviour  owners who err, or answer only now and then
python benchmarks/mechanisms.py --levels     the clock on finer and finer levels
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

import numpy as np

import noisemarket as nm
from noisemarket.mechanisms.joint import JointValue

SIZES = {"clock": 1_000_000, "pac_auction": 1_000_000, "csra_auction": 1_000_000,
         "posted_price": 1_000_000, "best_portfolio": 10_000}  # fmt: skip
ASKING = ("clock", "pac_auction", "csra_auction", "posted_price", "pain_fl", "bisection", "dypp")
HABITS = {"exact": {}, "errors 0.05": {"temperature": 0.05}, "errors 0.2": {"temperature": 0.2},
          "answers 98 %": {"answer_rate": 0.98}, "answers 90 %": {"answer_rate": 0.9}}  # fmt: skip

_CHILD = """
import json, resource, sys, time
from noisemarket.mechanisms import find_mechanism
from noisemarket.negotiation import run_options
from noisemarket.scenario import Scenario
name, owners = sys.argv[1], int(sys.argv[2])
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
scenario = Scenario.from_preset("market", owners=owners, budget=owners / 100.0, model="cnn")
environment, options = scenario.environment(), run_options(scenario)
mechanism = find_mechanism(name)
before, start = peak(), time.process_time()
sold = mechanism.run(environment, options).contracts.signed.sum()
print(json.dumps({"seconds": time.process_time() - start, "sold": int(sold), "before": before,
                  "peak": peak()}))
"""


def speed() -> None:
    """CPU seconds and memory of a mechanism with owners and their figures already drawn."""
    print("| mechanism | owners | CPU seconds | peak memory, GB | of it before it ran |")
    print("|---|---|---|---|---|")
    for name, owners in SIZES.items():
        command = [sys.executable, "-c", _CHILD, name, str(owners)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        one = json.loads(done.stdout)
        figures = f"{one['seconds']:.2f} | {one['peak']:.2f} | {one['before']:.2f}"
        print(f"| `{name}` | {owners:,} | {figures} |", flush=True)


def behaviour(seeds: int) -> None:
    """What the curator gains with owners who answer badly, and how many of them lose by it."""
    print(f"| mechanism | {' | '.join(HABITS)} |")
    print("|---|" + "---|" * len(HABITS))
    for name in ASKING:
        cells = []
        for habit in HABITS.values():
            gains, lost = [], []
            for seed in range(1, seeds + 1):
                scenario = nm.Scenario.from_preset(
                    "market", seed=seed, budget=100.0, model="cnn", **habit
                )
                result = nm.negotiate(scenario, mechanism=name)
                contracts, side = result.agreement.contracts, result.environment.owner_side()
                left = side.surplus(contracts.saving, contracts.payment)[contracts.signed]
                gains.append(result.learned.joint_gain)
                lost.append(float((left < -1e-9).mean()) if len(left) else 0.0)
            cells.append(f"{statistics.mean(gains):.0f} ({100 * statistics.mean(lost):.0f} %)")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


def levels(seeds: int) -> None:
    """The clock with a floor and prices as fine as one likes."""
    print("| saving levels | payment levels | curator's value | paid | questions to an owner |")
    print("|---|---|---|---|---|")
    for savings, payments in ((6, 8), (12, 32), (48, 128), (192, 1_024), (200, 9_900)):
        values, paid, asked = [], [], []
        for seed in range(1, seeds + 1):
            scenario = nm.Scenario.from_preset(
                "market", seed=seed, budget=100.0, J=savings, K=payments
            )
            result = nm.negotiate(scenario, mechanism="clock")
            values.append(JointValue.of(result.environment).gain(result.agreement.contracts))
            paid.append(result.learned.total_payment)
            asked.append(min(40, payments))
        figures = f"{np.mean(values):.2f} | {np.mean(paid):.2f} | at most {max(asked)}"
        print(f"| {savings} | {payments:,} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--behaviour", action="store_true", help="owners who answer badly")
    parser.add_argument("--levels", action="store_true", help="finer and finer levels")
    parser.add_argument("--seeds", type=int, default=5, help="populations to take the mean over")
    options = parser.parse_args()
    if options.behaviour:
        behaviour(options.seeds)
    elif options.levels:
        levels(options.seeds)
    else:
        speed()


if __name__ == "__main__":
    main()
