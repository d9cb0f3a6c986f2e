"""Reading 1,000,000 records of 30 columns from a CSV file into features: CPU seconds and memory."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path

import numpy as np

from noisemarket.federated.data_files import load_data
from noisemarket.machine import Effort

OWNERS = 50


def write(folder: Path, records: int, columns: int) -> Path:
    """A file of made-up records: half of the columns numbers, half texts."""
    rng = np.random.default_rng(1)
    lines = ['owner_column = "site"', "[label]", 'column = "y"', 'classes = ["no", "yes"]']
    names = [f"x{number:02}" for number in range(columns)]
    for number, name in enumerate(names):
        kind = (
            'kind = "number"\nlow = -3\nhigh = 3'
            if number % 2
            else f'kind = "category"\nvalues = {[f"value {code}" for code in range(8)]}'
        )
        lines.append(f"[columns.{name}]\n{kind}")
    (folder / "columns.toml").write_text("\n".join(lines))
    path = folder / "records.csv"
    with path.open("w") as file:
        file.write(",".join(["site", *names, "y"]) + "\n")
        for first in range(0, records, 10_000):
            count = min(10_000, records - first)
            numbers = rng.standard_normal((count, columns)).round(4)
            codes = rng.integers(0, 9, (count, columns))
            for row in range(count):
                values = [
                    str(numbers[row, at]) if at % 2 else f"value {codes[row, at]}"
                    for at in range(columns)
                ]
                site, label = f"site {rng.integers(OWNERS)}", rng.choice(["no", "yes"])
                file.write(",".join([site, *values, label]) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), asked.records, asked.columns)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        effort = Effort()
        data = load_data(str(path))
        features = data.train_inputs()
        found = {
            "command": "python -m benchmarks tables",
            "records": len(features) + len(data.test_labels),
            "features": features.shape[1],
            "megabytes_of_csv": round(path.stat().st_size / 1e6),
            "peak_memory_megabytes": round(
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            ),
            "memory_before_megabytes": round(before / 1e3),
            **effort.as_dict(),
        }
    print(json.dumps(found, indent=2))
