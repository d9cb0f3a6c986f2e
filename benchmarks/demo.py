"""The demo's job, `noisemarket run`: stored, with what it took, for the README.

    python -m benchmarks demo

stores what the market bought in ``benchmarks/results/demo.json`` and its figure in
``docs/images/market.png``. ``make results`` writes the table into the README.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from noisemarket.machine import Effort

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "benchmarks" / "results" / "demo.json"
FIGURE = ROOT / "docs" / "images" / "market.png"
KEPT = ("owners", "currency", "alternatives", "total_paid", "trades")


def main() -> None:
    """Run it as a user would, and keep what the README shows."""
    with tempfile.TemporaryDirectory() as folder:
        effort = Effort()
        command = [sys.executable, "-m", "noisemarket", "run", "--json", "--out", f"{folder}/demo"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        took, summary = effort.as_dict(), json.loads(done.stdout)
        (figure,) = Path(folder).glob("demo/figures/market.png")
        shutil.copyfile(figure, FIGURE)
        with (Path(folder) / "demo" / "contracts.csv").open(encoding="utf-8", newline="") as file:
            sold = [row for row in csv.DictReader(file) if float(row["saving"]) > 0]
    carried = sum(float(row["weight"]) for row in sold)
    document = {"command": "noisemarket run", **took, "sellers_weight": carried}
    document |= {name: summary[name] for name in KEPT}
    STORED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"Stored: {STORED}")


if __name__ == "__main__":
    main()
