"""Eight mechanisms, three budgets, ten seeds, through to the trained model: run and stored.

    python benchmarks/campaign.py [--no-floor] [--workers 2]

runs ``noisemarket compare`` on examples/campaign.toml in ``runs/campaign``, goes on where an
earlier run was stopped, and stores every case in ``benchmarks/results/campaign-features.json``.

All owners keep noise 0.1 at least, whoever buys: the same privacy for all. With ``--no-floor`` an
owner sells all its noise if it is paid for that, to those mechanisms that buy it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from noisemarket.show.comparison_report import round_means
from noisemarket.study.comparison.results import Row

FOLDERS = {True: Path("runs/campaign"), False: Path("runs/campaign-no-floor")}
RESULTS = Path(__file__).parent / "results"
STORED = {
    True: RESULTS / "campaign-features.json",
    False: RESULTS / "campaign-no-floor.json",
}
"""By whether all owners keep a floor."""

FLOOR = ["--set", "population.floor=0.1"]
MECHANISMS = (
    *("clock", "csra_auction", "posted_price", "pain_fl"),
    *("bisection", "dypp", "q_learning", "best_portfolio"),
)
BUDGETS = "30,100,300"
ASKED = [
    *("examples/campaign.toml", "--mechanisms", ",".join(MECHANISMS)),
    *("--seeds", "10", "--budgets", BUDGETS),
]
LEFT_OUT = ("means", "differences", "same_contracts")
"""They follow from the rows."""

DIGITS = 6


def main() -> None:
    """Run or resume the comparison, then store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--workers", type=int, default=None)
    given = parser.parse_args()
    floored = not given.no_floor
    asked = [*ASKED, *(FLOOR if floored else [])]
    run_and_store(asked, FOLDERS[floored], STORED[floored], given.workers)


def run_and_store(asked: list[str], folder: Path, stored: Path, workers: int | None) -> None:
    """Compare as asked, or go on where that was stopped; then keep what results are made from."""
    if (folder / "plan.json").exists():
        words = ["--resume", str(folder)]
    else:
        words = [*asked, "--out", str(folder)]
    if workers:
        words += ["--workers", str(workers)]
    subprocess.run([sys.executable, "-m", "noisemarket", "compare", *words], check=True)
    document = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(compact(document), encoding="utf-8")
    print(f"Stored: {stored}")


def compact(document: dict[str, Any]) -> str:
    """The document with a line for each case, without what follows from the rest."""
    kept = {key: value for key, value in document.items() if key not in (*LEFT_OUT, "rows")}
    rounds = [json.dumps(_short(one)) for one in rounds_of(document["rows"])]
    lines = [json.dumps(_short(row)) for row in document["rows"]]
    return (
        json.dumps(_short(kept))[:-1]
        + ',\n"per_round": [\n' + ",\n".join(rounds)
        + '\n],\n"rows": [\n' + ",\n".join(lines) + "\n]}\n"
    )  # fmt: skip


def rounds_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Accuracy after each round: means over the seeds of each mechanism under each budget."""
    names = {field.name for field in fields(Row)}
    cases = [Row(**{key: row[key] for key in names}) for row in rows]
    return [vars(one) for one in round_means(cases)]


def _short(value: Any) -> Any:
    """Numbers to some digits; of accuracies after each round the means are kept, not all."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items() if key != "accuracy_per_round"}
    return value


if __name__ == "__main__":
    main()
