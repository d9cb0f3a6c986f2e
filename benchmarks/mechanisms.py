"""How fast and how good mechanisms are with many owners, and how they hold up if owners err.

python -m benchmarks mechanisms              speed and memory, each in a process of its own
python -m benchmarks mechanisms --scores     how near the clock is to the best that there is
python -m benchmarks mechanisms --behaviour  owners who err, or answer only now and then
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import replace
from typing import Any

import noisemarket as nm
from benchmarks.lying import surplus
from benchmarks.results_page.common import keep
from noisemarket.game.value import JointValue
from noisemarket.machine import Effort
from noisemarket.market.negotiation import run_options
from noisemarket.pricing.oracles import best_portfolio

SIZES = {"clock": 1_000_000, "pac_auction": 1_000_000, "csra_auction": 1_000_000,
         "posted_price": 1_000_000, "best_portfolio": 10_000}  # fmt: skip
UNEQUAL = {"distribution": "log_uniform", "low": 20, "high": 2000}
"""Records of the owners where they differ."""

ASKING = ("clock", "pac_auction", "csra_auction", "posted_price", "pain_fl", "bisection", "dypp")
HABITS = {"exact": {}, "errors 0.05": {"temperature": 0.05}, "errors 0.2": {"temperature": 0.2},
          "answers 98 %": {"answer_rate": 0.98}, "answers 90 %": {"answer_rate": 0.9}}  # fmt: skip

_CHILD = """
import json, resource, sys, time
from noisemarket.pricing import find_mechanism
from noisemarket.market.negotiation import run_options
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


def speed() -> list[dict[str, Any]]:
    """CPU seconds and memory of a mechanism with owners and their figures already drawn."""
    rows = []
    for name, owners in SIZES.items():
        command = [sys.executable, "-c", _CHILD, name, str(owners)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append({"mechanism": name, "owners": owners, **json.loads(done.stdout)})
    return rows


def speed_table(rows: list[dict[str, Any]]) -> str:
    """The rows of the table in benchmarks/README.md."""
    return "\n".join(
        f"| `{row['mechanism']}` | {row['owners']:,} | {row['seconds']:.2f} | {row['peak']:.2f} |"
        for row in rows
    )


def scores(seeds: int) -> dict[str, Any]:
    """The clock's value with one price and with scores, over the best portfolio's."""
    clock = []
    for surface in ("features-mnist", "sharded-mnist"):
        for budget in (None, 100.0):
            parts: dict[str, list[float]] = {"one": [], "scored": []}
            for seed in range(1, seeds + 1):
                given = {"seed": seed, "surface": surface}
                if budget is not None:
                    given["budget"] = budget
                for prices, own in parts.items():
                    scenario = nm.Scenario.from_preset("market", data_size=UNEQUAL, **given)
                    environment, options = scenario.environment(), run_options(scenario)
                    joint = JointValue.of(environment)
                    best = joint.gain(best_portfolio(environment, options.demand))
                    demand = replace(options.demand, scored=prices == "scored")
                    clock_options = replace(options, demand=demand)
                    agreed = nm.MECHANISMS["clock"].run(environment, clock_options).contracts
                    own.append(joint.gain(agreed) / best)
            named = {"surface": surface, "budget": budget}
            clock.append(named | {prices: statistics.mean(own) for prices, own in parts.items()})
    return {"clock": clock}


def reach(seeds: int) -> list[dict[str, Any]]:
    """The clock's value over the best portfolio's, down to one floor and another."""
    rows = []
    for floor in (0.1, 0.05):
        for budget in (None, 100.0):
            shares = []
            for seed in range(1, seeds + 1):
                scenario = nm.Scenario.from_preset(
                    "market", seed=seed, floor=floor, **({"budget": budget} if budget else {})
                )
                best = best_portfolio(scenario.environment(), run_options(scenario).demand)
                agreed = nm.negotiate(scenario, mechanism="clock")
                joint = JointValue.of(agreed.environment)
                shares.append(joint.gain(agreed.agreement.contracts) / joint.gain(best))
            rows.append({"floor": floor, "budget": budget, "shares": shares})
    return rows


def reach_table(rows: list[dict[str, Any]]) -> str:
    """A line for each floor: the mean over the populations, least and most."""
    lines = ["| `market.floor` | no budget | budget 100 |", "|---|---|---|"]
    for floor in dict.fromkeys(row["floor"] for row in rows):
        cells = [
            f"{100 * statistics.mean(own):.0f} % ({100 * min(own):.0f} to {100 * max(own):.0f})"
            for own in (row["shares"] for row in rows if row["floor"] == floor)
        ]
        lines.append(f"| {floor:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def scores_table(found: dict[str, Any]) -> str:
    """The table of scores in docs/explanation/mechanisms.md."""
    return percents(found["clock"], {"one": "one price", "scored": "scored"}, digits=0)


def percents(rows: list[dict[str, Any]], columns: dict[str, str], *, digits: int) -> str:
    """A line for each surface and budget, with parts as per cent under their headings."""
    lines = [f"| surface | budget | {' | '.join(columns.values())} |", "|---|---|---|---|"]
    for row in rows:
        shares = " | ".join(f"{100 * row[key]:.{digits}f} %" for key in columns)
        lines.append(f"| `{row['surface']}` | {row['budget'] or 'none'} | {shares} |")
    return "\n".join(lines)


def behaviour(seeds: int) -> list[dict[str, Any]]:
    """What the curator gains with owners who answer badly, and how many of them lose by it."""
    rows = []
    for name in ASKING:
        for habit, settings in HABITS.items():
            gains, lost = [], []
            for seed in range(1, seeds + 1):
                scenario = nm.Scenario.from_preset(
                    "market", seed=seed, budget=100.0, model="cnn", **settings
                )
                result = nm.negotiate(scenario, mechanism=name)
                contracts, side = result.agreement.contracts, result.environment.owner_side()
                left = surplus(side, contracts.saving, contracts.payment)[contracts.signed]
                gains.append(result.learned.predicted_value)
                lost.append(float((left < -1e-9).mean()) if len(left) else 0.0)
            means = {"gain": statistics.mean(gains), "lost": statistics.mean(lost)}
            rows.append({"mechanism": name, "habit": habit, **means})
    return rows


def behaviour_table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/explanation/mechanisms.md."""
    lines = [f"| mechanism | {' | '.join(HABITS)} |", "|---|" + "---|" * len(HABITS)]
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        own = [row for row in rows if row["mechanism"] == name]
        cells = [f"{row['gain']:.0f} ({100 * row['lost']:.0f} %)" for row in own]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def levels(seeds: int) -> list[dict[str, Any]]:
    """The clock with a floor and prices as fine as one likes."""
    rows = []
    for savings, payments in ((6, 8), (12, 32), (48, 128), (192, 1_024), (200, 9_900)):
        values, paid = [], []
        for seed in range(1, seeds + 1):
            scenario = nm.Scenario.from_preset(
                "market", seed=seed, budget=100.0, J=savings, K=payments
            )
            result = nm.negotiate(scenario, mechanism="clock")
            values.append(JointValue.of(result.environment).gain(result.agreement.contracts))
            paid.append(result.learned.total_payment)
        means = {"value": statistics.mean(values), "paid": statistics.mean(paid)}
        rows.append({"savings": savings, "payments": payments, **means})
    return rows


def levels_line(rows: list[dict[str, Any]]) -> str:
    """What finer levels bring, in a few words."""
    usual, finest = (next(row for row in rows if row["savings"] == n) for n in (12, 200))
    return (
        f"{usual['value']:.1f} with 12 x 32 levels and {finest['value']:.1f} with "
        f"{finest['savings']} x {finest['payments']:,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scores", action="store_true", help="the clock with scores")
    parser.add_argument("--behaviour", action="store_true", help="owners who answer badly")
    parser.add_argument("--seeds", type=int, default=5, help="populations to take the mean over")
    options = parser.parse_args()
    command, effort = "python -m benchmarks mechanisms", Effort()
    if options.behaviour:
        rows, command = behaviour(options.seeds), f"{command} --behaviour"
        keep("behaviour", __doc__, command, effort, {"seeds": options.seeds, "rows": rows})
        print(behaviour_table(rows))
    elif options.scores:
        seeds, command = max(options.seeds, 20), f"{command} --scores"
        found = scores(seeds) | {"reach": reach(seeds), "levels": levels(options.seeds)}
        keep("clock-scores", __doc__, command, effort, {"seeds": seeds, **found})
        print(scores_table(found), reach_table(found["reach"]),
              levels_line(found["levels"]), sep="\n\n")  # fmt: skip
    else:
        rows = speed()
        keep("mechanisms", __doc__, command, effort, {"rows": rows})
        print(speed_table(rows))


if __name__ == "__main__":
    main()
