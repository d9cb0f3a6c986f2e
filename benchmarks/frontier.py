"""What money buys on the CNN, in the paper's setting: 100 owners, 30 rounds.

    python benchmarks/frontier.py [--model cnn] [--seeds 2] [--workers 2]

The clock auction, DyPP and bisection at their best, and the best portfolio, for three budgets. All
mechanisms decide by the CNN's own loss surface, and every owner keeps noise 0.1, whoever buys: the
same privacy for all. It runs ``noisemarket compare`` in ``runs/frontier-MODEL``, goes on where an
earlier run was stopped, and stores every case in ``benchmarks/results/frontier-MODEL.json``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from campaign import FLOOR, RESULTS, run_and_store

SCENARIO = "examples/frontier-cnn.toml"
MECHANISMS = "clock,bisection,dypp,best_portfolio"
BUDGETS = "30,100,300"
MODELS = ("cnn", "features")


def main() -> None:
    """Run or resume the comparison, then store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--mechanisms", default=MECHANISMS, help="with commas between them")
    parser.add_argument("--budgets", default=BUDGETS, help="with commas between them")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--set", action="append", default=[], help="a smaller trial: owners=10")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    asked = [SCENARIO, "--mechanisms", given.mechanisms, "--seeds", str(given.seeds)]
    asked += ["--budgets", given.budgets, *FLOOR]
    for setting in [*([] if given.model == "cnn" else [f"model={given.model}"]), *given.set]:
        asked += ["--set", setting]
    name = f"frontier-{given.model}"
    folder, out = given.folder or Path("runs") / name, given.out or RESULTS / f"{name}.json"
    run_and_store(asked, folder, out, given.workers)


if __name__ == "__main__":
    main()
