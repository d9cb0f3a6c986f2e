"""What a unit of money buys: the clock auction for at most 120 against DyPP for about 300.

    python benchmarks/gain_per_money.py [--seeds 10]

Owners, data and noise are the same for both, over several seeds. On the surface of the features
DyPP finds no trade that pays and spends nothing; so it plays on the surface of the CNN, on which it
would spend more than 300, and the model is trained under what it bought. DyPP plays by default,
with the best settings of the sweep (docs/explanation/learning.md), and with these where all owners
keep the noise that the sellers of the clock keep.

Trainings are kept in ``runs/gain-per-money.jsonl`` and not done again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from best_settings import learning
from noisemarket.machine import Effort
from noisemarket.scenario import Scenario
from noisemarket.study.comparison.campaign import Campaign, Plan
from noisemarket.study.comparison.decisions import NO_TRADE
from noisemarket.study.comparison.results import Row, means
from noisemarket.study.comparison.significance import half_width, paired_p
from noisemarket.study.comparison.trainings import line_of, read_trained

CLOCK, PAPERS = "clock", "dypp"
BUDGET = 120.0
"""What the clock auction may spend at most."""

PAPERS_BUDGET = 300.0
"""What DyPP may spend: of its deals those with most gain per money are struck, as a run does."""

PAPERS_BEST = learning(PAPERS)
RESULTS = Path(__file__).parent / "results"

FLOOR = 0.05
"""Noise that sellers keep in the second run of the clock auction."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, default=RESULTS / "gain-per-money.json")
    given = parser.parse_args()
    out, kept = given.out, Path("runs/gain-per-money.jsonl")
    seeds = tuple(range(1, given.seeds + 1))
    for file in (out, kept):
        file.parent.mkdir(parents=True, exist_ok=True)
    market = Scenario.from_preset("market")
    lower = Scenario.from_preset("market", floor=FLOOR)

    def papers(**settings: Any) -> Scenario:
        return Scenario.from_preset("market", surface="sharded-mnist", **settings)

    papers_plan = Plan((PAPERS,), (PAPERS_BUDGET,), seeds)
    runs = {
        "no trade": (market, Plan((NO_TRADE,), (None,), seeds)),
        f"clock, at most {BUDGET:g}": (market, Plan((CLOCK,), (BUDGET,), seeds)),
        f"clock, at most {BUDGET:g}, floor {FLOOR:g}": (lower, Plan((CLOCK,), (BUDGET,), seeds)),
        f"DyPP by default, at most {PAPERS_BUDGET:g}": (papers(), papers_plan),
        f"DyPP at its best, at most {PAPERS_BUDGET:g}": (papers(**PAPERS_BEST), papers_plan),
        f"DyPP at its best, at most {PAPERS_BUDGET:g}, floor {FLOOR:g}": (
            papers(**PAPERS_BEST, population={"floor": FLOOR}),
            papers_plan,
        ),
        f"full knowledge, at most {BUDGET:g}": (
            market,
            Plan(("best_portfolio",), (BUDGET,), seeds),
        ),
    }
    rows: dict[str, list[Row]] = {}
    effort = Effort()
    for name, (scenario, plan) in runs.items():
        rows[name] = measured(scenario, plan, kept, given.workers)
        print(name, [round(row.accuracy, 2) for row in rows[name]], flush=True)
    document = {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "command": f"python benchmarks/gain_per_money.py --seeds {given.seeds}",
        "dypp": PAPERS_BEST,
        "floor": FLOOR,
        **{key: effort.as_dict()[key] for key in ("date", "machine")},
        "training_cpu_seconds": round(sum(one.cpu_seconds for one in read_trained(kept).values())),
        "rows": [line(name, some, rows["no trade"]) for name, some in rows.items()],
    }
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(markdown(document))


def measured(scenario: Scenario, plan: Plan, kept: Path, workers: int | None) -> list[Row]:
    """The rows of the one mechanism of a plan, in the order of the seeds."""
    with kept.open("a", encoding="utf-8") as file:
        campaign = Campaign(
            scenario, plan, read_trained(kept), lambda one: (file.write(line_of(one)), file.flush())
        )
        campaign.decide()
        campaign.train(workers=workers)
    return [row for row in campaign.rows() if row.mechanism == plan.mechanisms[0]]


def line(name: str, rows: list[Row], nothing: list[Row]) -> dict[str, Any]:
    """Means over the seeds, with half of the 95 % interval; gains are paired with no trade."""
    (mean,) = means(rows)
    gains = [one.accuracy - other.accuracy for one, other in zip(rows, nothing, strict=True)]
    return {
        "name": name,
        "seeds": len(rows),
        "paid": mean.mean["paid"],
        "paid_most": max(row.paid for row in rows),
        "sellers": mean.mean["sellers"],
        "accuracy": mean.mean["accuracy"],
        "accuracies": [row.accuracy for row in rows],
        "gain": float(np.mean(gains)),
        "gain_half_width": half_width(gains),
        "gain_p": paired_p(np.array(gains)),
    }


def markdown(document: dict[str, Any]) -> str:
    """The table of a document."""
    out = ["| | paid | sellers | accuracy | gain over no trade |", "|---|---|---|---|---|"]
    for row in document["rows"]:
        gain = f"{row['gain']:+.2f} ± {row['gain_half_width']:.2f}" if row["gain"] else ""
        out.append(
            f"| {row['name']} | {row['paid']:.1f} | {row['sellers']:.1f} | {row['accuracy']:.2f} % "
            f"| {gain} |"
        )
    return "\n".join(out)


if __name__ == "__main__":
    main()
