"""What money buys on the CNN, in the paper's setting: 100 owners, 30 rounds.

    python benchmarks/frontier.py [--seeds 2] [--workers 2]

The clock auction, DyPP and bisection at their best, and the best portfolio, for three budgets. All
mechanisms decide by the CNN's own loss surface, and every owner keeps noise 0.1, whoever buys: the
same privacy for all. It runs ``noisemarket compare`` in ``runs/frontier-cnn``, goes on where an
earlier run was stopped, and stores every case in ``benchmarks/results/frontier-cnn.json``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from campaign import BUDGETS, FLOOR, RESULTS, run_and_store

SCENARIO = "examples/frontier-cnn.toml"
MECHANISMS = "clock,bisection,dypp,best_portfolio"


def main() -> None:
    """Run or resume the comparison, then store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--mechanisms", default=MECHANISMS, help="with commas between them")
    parser.add_argument("--budgets", default=BUDGETS, help="with commas between them")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--set", action="append", default=[], help="a smaller trial: owners=10")
    parser.add_argument("--folder", type=Path, default=Path("runs/frontier-cnn"))
    parser.add_argument("--out", type=Path, default=RESULTS / "frontier-cnn.json")
    given = parser.parse_args()
    asked = [SCENARIO, "--mechanisms", given.mechanisms, "--seeds", str(given.seeds)]
    asked += ["--budgets", given.budgets, *FLOOR]
    for setting in given.set:
        asked += ["--set", setting]
    run_and_store(asked, given.folder, given.out, given.workers)


if __name__ == "__main__":
    main()
