"""Mechanisms at their best, over budgets and seeds, through to the trained model.

    python -m benchmarks campaign              # eight mechanisms, ten seeds: half an hour
    python -m benchmarks campaign --no-floor   # owners may sell all their noise
    python -m benchmarks campaign --cnn        # four mechanisms on the CNN, two seeds: hours

Unless ``--no-floor`` is given, all owners keep noise 0.1 at least: the same privacy for all. What
buys owner by owner finds next to no trade that pays on the loss surface of the features, so it
plays on that of the CNN there. Trainings are kept in ``runs/`` and not repeated; every case is
stored in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from noisemarket.machine import Effort
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import find_mechanism
from noisemarket.scenario import Scenario
from noisemarket.scenario.load import build
from noisemarket.study.compare import Comparison, Plan
from noisemarket.study.results import MeanRow, Row, comparison_document, round_means
from noisemarket.study.trainings import TrainingFile

RESULTS = Path(__file__).parent / "results"
BUDGETS = (30.0, 100.0, 300.0)
MECHANISMS = (
    *("clock", "csra_auction", "posted_price", "pain_fl"),
    *("bisection", "dypp", "q_learning", "best_portfolio"),
)
ON_CNN = ("clock", "bisection", "dypp", "best_portfolio")

Settings = Mapping[str, Mapping[str, Any]]
BEST: Settings = {
    "dypp": {
        "learning_rate": 0.4,
        "optimism": 2.0,
        "iterations": 80_000,
    },
    "q_learning": {"learning_rate": 0.2, "iterations": 80_000},
}
"""The best learning settings of the sweep (docs/explanation/learning.md)."""

ON_FEATURES: Settings = {
    name: {"surface": "sharded-mnist", **BEST.get(name, {})}
    for name in ("pain_fl", "bisection", "dypp", "q_learning")
}
"""Settings of single mechanisms where the linear model on features is trained."""

LEFT_OUT = ("means", "differences", "same_contracts")
"""They follow from the rows."""

DIGITS = 6
OWNERS = (10, 100, 1_000, 10_000)
PATIENCE = 5.0
"""Seconds after which a mechanism is not asked to serve more owners."""


@dataclass(frozen=True)
class Timing:
    """Processor seconds that a mechanism took to decide for so many owners."""

    mechanism: str
    owners: int
    seconds: float


def main() -> None:
    """Compare, or resume an earlier comparison, and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--cnn", action="store_true")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--owners", type=int, default=100, help="fewer for a trial")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    name = "frontier-cnn" if given.cnn else "campaign-features"
    name = "campaign-no-floor" if given.no_floor else name
    settings: dict[str, Any] = {"owners": given.owners}
    settings |= {"model": "cnn"} if given.cnn else {}
    settings |= {} if given.no_floor else {"population.floor": 0.1}
    scenario = build("market", {}, settings)
    own = {"dypp": BEST["dypp"]} if given.cnn else ON_FEATURES
    seeds = given.seeds or (2 if given.cnn else 10)
    plan = Plan(ON_CNN if given.cnn else MECHANISMS, BUDGETS, tuple(range(1, seeds + 1)))
    file = TrainingFile(training_file(name))
    document = measured(scenario, plan, own, file, given.workers)
    command = "python -m benchmarks campaign"
    command += " --cnn" * given.cnn + " --no-floor" * given.no_floor
    stored = given.out or RESULTS / f"{name}.json"
    stored.write_text(compact({"command": command, **document}), encoding="utf-8")
    print(f"Stored: {stored}")


def training_file(name: str) -> Path:
    """The file for the trainings of a study."""
    path = Path("runs") / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def scenarios(scenario: Scenario, own: Settings) -> dict[str, Scenario]:
    """The scenario with the settings of single mechanisms."""
    document = scenario.model_dump(mode="json")
    return {name: build(scenario.preset, document, dict(given)) for name, given in own.items()}


def compared(
    scenario: Scenario, plan: Plan, own: Settings, file: TrainingFile, workers: int | None
) -> Comparison:
    """A comparison that has decided and trained."""
    comparison = Comparison(scenario, plan, file, scenarios(scenario, own))
    comparison.decide()
    comparison.train(workers=workers, watch=lambda done, of: print(done, of, flush=True))
    return comparison


def measured(
    scenario: Scenario, plan: Plan, own: Settings, file: TrainingFile, workers: int | None
) -> dict[str, Any]:
    """All that the results page is made from."""
    effort, resumed = Effort(), bool(file.results)
    comparison = compared(scenario, plan, own, file, workers)
    spent = effort.as_dict()
    for name in ("seconds", "cpu_seconds") if resumed else ():  # those of the last part alone
        del spent[name]
    return {
        "preset": scenario.preset,
        "owners": scenario.population.owners,
        "rounds": scenario.training.rounds,
        "model": scenario.training.model,
        "surface": scenario.surface_name(),
        **vars(plan),
        **comparison_document(comparison.rows()),
        "growth": [vars(one) for one in timings(scenario, plan.mechanisms, own)],
        "settings": own,
        **spent,
        "training_cpu_seconds": round(comparison.training_cpu_seconds, 1),
    }


def timings(scenario: Scenario, mechanisms: Sequence[str], own: Settings) -> list[Timing]:
    """Time each mechanism on ever more owners; its first run, which may compile, is not counted."""
    out, special = [], scenarios(scenario, own)
    for name in mechanisms:
        mechanism, warm = find_mechanism(name), False
        for count in OWNERS:
            base = special.get(name, scenario)
            people = base.population.model_copy(update={"owners": count})
            sized = base.model_copy(update={"population": people})
            environment, options = sized.environment(), run_options(sized)
            if not warm:
                mechanism.run(environment, options)
                warm = True
            start = time.process_time()
            mechanism.run(environment, options)
            out.append(Timing(name, count, time.process_time() - start))
            if out[-1].seconds > PATIENCE:
                break
    return out


def compact(document: dict[str, Any]) -> str:
    """The document with a line for each case, without what follows from the rest."""
    rest = {key: value for key, value in document.items() if key not in (*LEFT_OUT, "rows")}
    rounds = [json.dumps(_short(one)) for one in rounds_of(document["rows"])]
    lines = [json.dumps(_short(row)) for row in document["rows"]]
    return (
        json.dumps(_short(rest))[:-1]
        + ',\n"per_round": [\n' + ",\n".join(rounds)
        + '\n],\n"rows": [\n' + ",\n".join(lines) + "\n]}\n"
    )  # fmt: skip


def rounds_of(rows: list[dict[str, Any]]) -> list[MeanRow]:
    """Accuracy after each round: means over the seeds of each mechanism under each budget."""
    names = {field.name for field in fields(Row)}
    cases = [Row(**{key: row.get(key) for key in names}) for row in rows]
    return round_means(cases)


def _short(value: Any) -> Any:
    """Numbers to some digits; of accuracies after each round only the means are stored."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items() if key != "accuracy_per_round"}
    return value


if __name__ == "__main__":
    main()
