"""Whole markets on the default job: mechanisms over budgets and seeds, through to the model.

    python -m benchmarks campaign                # eight mechanisms, three budgets, ten seeds
    python -m benchmarks campaign --elsewhere    # Fashion-MNIST, 10 and 1,000 owners

All at their defaults, as ``noisemarket compare`` runs them; elsewhere each market first measures a
loss surface of its own. Trainings are kept in ``runs/`` and not repeated; every case is stored in
``benchmarks/results``. Fashion-MNIST is read from ``FASHION`` (Debian: dataset-fashion-mnist).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from noisemarket.machine import Effort
from noisemarket.scenario import Scenario
from noisemarket.study.compare import Plan, compared
from noisemarket.study.job_surface import with_surface
from noisemarket.study.results import comparison_document
from noisemarket.study.trainings import TrainingFile

RESULTS = Path(__file__).parent / "results"
BUDGETS = (100.0, 300.0, None)
MECHANISMS = (
    *("dypp", "q_learning", "bisection", "pain_fl"),
    *("posted_price", "csra_auction", "clock", "best_portfolio"),
)
FASHION = "/usr/share/datasets/fashion-mnist"
ELSEWHERE: dict[str, dict[str, Any]] = {
    "Fashion-MNIST": {"data": FASHION},
    "10 owners": {"owners": 10, "data_size": 6000.0},
    "1,000 owners": {"owners": 1000, "data_size": 60.0},
}
"""Other markets, by what sets them apart; all of MNIST is dealt out in each."""

LEFT_OUT = ("means", "differences", "same_contracts", "accuracy_per_round")
"""They follow from the rows, or no page shows them."""

DIGITS = 6


def main() -> None:
    """Compare, or resume an earlier comparison, and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elsewhere", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    seeds, command = tuple(range(1, given.seeds + 1)), "python -m benchmarks campaign"
    if given.elsewhere:
        plan = Plan(("dypp", "clock", "best_portfolio"), (None,), seeds)
        name, command = "elsewhere", f"{command} --elsewhere"
        effort, markets = Effort(), {}
        for title, settings in ELSEWHERE.items():
            markets[title] = measured(
                Scenario.from_preset("market", **settings), plan, title, given.workers
            )
        document: dict[str, Any] = {"markets": markets, **effort.as_dict()}
    else:
        name, plan = "campaign", Plan(MECHANISMS, BUDGETS, seeds)
        document = measured(Scenario.from_preset("market"), plan, name, given.workers)
    stored = given.out or RESULTS / f"{name}.json"
    stored.write_text(compact({**document, "command": command}), encoding="utf-8")
    print(f"Stored: {stored}")


def training_file(name: str) -> Path:
    """The file for the trainings of a study."""
    path = Path("runs") / f"{name.replace(' ', '-')}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def measured(scenario: Scenario, plan: Plan, name: str, workers: int | None) -> dict[str, Any]:
    """All that the results page is made from."""
    effort, file = Effort(), TrainingFile(training_file(name))
    resumed, ready = bool(file.results), with_surface(scenario, workers=workers)
    print(ready.remark, flush=True)
    watch = partial(print, flush=True)
    rows = compared(ready.scenario, plan, file, workers=workers, watch=watch)
    spent = effort.as_dict()
    for part in ("seconds", "cpu_seconds") if resumed else ():  # those of the last part alone
        del spent[part]
    return {
        "owners": scenario.population.owners,
        "rounds": scenario.training.rounds,
        **vars(plan),
        **comparison_document(rows),
        **spent,
        "training_cpu_seconds": round(file.cpu_seconds, 1),
    }


def compact(document: Mapping[str, Any]) -> str:
    """The document with a line for each case, without what follows from the rest."""
    text = json.dumps(_short(document))
    return text.replace('{"mechanism"', '\n{"mechanism"') + "\n"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items() if key not in LEFT_OUT}
    return value


if __name__ == "__main__":
    main()
