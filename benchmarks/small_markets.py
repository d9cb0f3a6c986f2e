"""Whole markets of ten owners: does trade ever leave the model worse than no trade?

    python -m benchmarks small-markets             16 populations, three draws of the noise each
    python -m benchmarks small-markets --quick     two populations: shows that everything runs

Every mechanism buys from the same owners, with a loss surface that was measured for this job, and
what it bought is trained as ``noisemarket run`` trains its baselines. No population should end
below no trade. What is finished is kept under ``runs/``: a run that was cut off resumes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.files import digest
from noisemarket.machine import Effort
from noisemarket.market.baselines import BaselineWork, Draw, epsilons, with_noise
from noisemarket.market.orders import Order, prepare
from noisemarket.market.worker_processes import in_processes
from noisemarket.scenario import Scenario, dump_scenario
from noisemarket.study.compare import Decision, Plan, decisions
from noisemarket.study.job_surface import with_surface
from noisemarket.study.results import NO_TRADE, half_width

STORED = Path(__file__).resolve().parent / "results" / "small-markets.json"
MECHANISMS = ("dypp", "clock")

Row = dict[str, Any]


def measured(
    scenario: Scenario,
    mechanisms: Sequence[str],
    seeds: Sequence[int],
    draws: int,
    folder: Path,
    workers: int | None = None,
) -> list[Row]:
    """A row per seed and mechanism: what was bought, and the points over no trade it trained to."""
    rows: list[Row] = []
    for seed in seeds:
        seeded = scenario.model_copy(update={"seed": seed})
        plan = Plan((NO_TRADE, *mechanisms), (None,), (seed,))
        found = {one.mechanism: one for one in decisions(seeded, plan)}
        rows += trained(seeded, found, draws, folder / str(seed), workers)
        for row in rows[-len(mechanisms) :]:
            print(f"seed {seed}, {row['mechanism']}: {row['points']:+.2f} points, "
                  f"{row['sellers']} sellers, paid {row['paid']:.1f}", flush=True)  # fmt: skip
    return rows


def trained(
    scenario: Scenario,
    found: Mapping[str, Decision],
    draws: int,
    folder: Path,
    workers: int | None,
) -> list[Row]:
    """The rows of one population; mechanisms that bought the same share their trainings."""
    order = prepare(scenario.model_copy(update={"mechanism": NO_TRADE})).order
    first: dict[bytes, str] = {}
    same = {name: first.setdefault(one.sigma.tobytes(), name) for name, one in found.items()}
    tasks = [
        Draw(name, found[name].sigma, draw)
        for name in first.values()
        for draw in range(1, draws + 1)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    accuracy = {}
    for task, rounds in in_processes(BaselineWork(scenario, order, folder), tasks, workers=workers):
        accuracy[task.name, task.draw] = (rounds[-1].averaged or rounds[-1].score).accuracy
    return [
        _row(scenario, order, one, [
            (accuracy[NO_TRADE, draw], accuracy[same[name], draw]) for draw in range(1, draws + 1)
        ])
        for name, one in found.items() if name != NO_TRADE
    ]  # fmt: skip


def _row(
    scenario: Scenario, order: Order, one: Decision, accuracies: Sequence[tuple[float, float]]
) -> Row:
    """``accuracies``: without trade and with it, for each draw."""
    without, under = np.array(accuracies).T
    points = under - without
    return {
        "mechanism": one.mechanism,
        "seed": one.seed,
        "sellers": one.sellers,
        "paid": one.paid,
        "predicted_value": one.predicted_value,
        "highest_epsilon": float(epsilons(with_noise(order, scenario, one.sigma)).max()),
        "no_trade": float(without.mean()),
        "accuracy": float(under.mean()),
        "points": float(points.mean()),
        "points_of_draws": points.tolist(),
    }


def summary(rows: Sequence[Row]) -> dict[str, Row]:
    """By mechanism: mean points over no trade, the worst population, and how many end below."""
    out = {}
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        points = [row["points"] for row in rows if row["mechanism"] == name]
        out[name] = {
            "populations": len(points),
            "mean_points": float(np.mean(points)),
            "half_width": half_width(points),
            "worst_points": min(points),
            "below_no_trade": sum(one < 0.0 for one in points),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Trade against no trade in small markets.")
    parser.add_argument("--owners", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=3, help="draws of the noise")
    parser.add_argument("--mechanisms", default=",".join(MECHANISMS))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--quick", action="store_true", help="two populations, nothing is stored")
    options = parser.parse_args()
    seeds = 2 if options.quick else options.seeds
    draws = 1 if options.quick else options.draws
    effort = Effort()
    ready = with_surface(
        Scenario.from_preset("market", owners=options.owners, seed=options.first_seed),
        workers=options.workers,
    )
    scenario = ready.scenario
    print(ready.remark, flush=True)
    job = digest(dump_scenario(scenario).encode()).hex()[:12]
    rows = measured(
        scenario, options.mechanisms.split(","),
        range(options.first_seed, options.first_seed + seeds), draws,
        Path("runs") / f"small-markets-{job}", options.workers,
    )  # fmt: skip
    found = summary(rows)
    for name, one in found.items():
        print(
            f"{name}: {one['mean_points']:+.2f} ± {one['half_width']:.2f} points over no trade, "
            f"worst {one['worst_points']:+.2f}, {one['below_no_trade']} of {one['populations']} "
            "below no trade"
        )
    if options.quick:
        return
    document = {
        "command": " ".join(["python -m benchmarks small-markets", *sys.argv[1:]]),
        **effort.as_dict(),
        "owners": options.owners,
        "draws": draws,
        "rounds": scenario.training.rounds,
        "protection": scenario.privacy.protection,
        "weight_cap": scenario.training.weight_cap,
        "summary": found,
        "rows": rows,
    }
    STORED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"Stored: {STORED}")


if __name__ == "__main__":
    main()
