"""Splits scikit-learn's breast cancer data over the CSV files of twelve made-up hospitals.

    pip install scikit-learn
    python examples/hospitals/make.py FOLDER

Every fifth record is the curator's own (test.csv). Small hospitals see other patients than large
ones: the larger the tumour, the likelier a record goes to a large hospital.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

HOSPITALS = {
    "ashford": 64, "bexley": 57, "calder": 52, "dunmore": 47, "elmhurst": 42, "fairview": 38,
    "greenway": 34, "hartwell": 30, "ironbridge": 27, "juniper": 24, "kingsmead": 21,
    "larkhill": 20,
}  # fmt: skip
"""How many of the 456 training records each hospital has."""


def write(path: Path, names: list[str], rows: np.ndarray, diagnoses: np.ndarray) -> None:
    """Write records and their diagnoses to a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*names, "diagnosis"])
        for row, diagnosis in zip(rows, diagnoses, strict=True):
            lines.writerow([*(f"{value:.6g}" for value in row), diagnosis])


def main(folder: Path) -> None:
    """Write the test file and the hospitals' files."""
    data = load_breast_cancer()
    names = [str(name) for name in data.feature_names]
    diagnoses = data.target_names[data.target]
    order = np.random.default_rng(1).permutation(len(diagnoses))
    test, rest = order[4::5], np.delete(order, np.s_[4::5])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "test.csv", names, data.data[test], diagnoses[test])
    size = data.data[rest, names.index("mean radius")]
    pull = size / size.std() + np.random.default_rng(2).gumbel(scale=2.0, size=len(rest))
    rest = rest[np.argsort(-pull)]
    for name, own in zip(HOSPITALS, np.split(rest, np.cumsum([*HOSPITALS.values()])), strict=False):
        write(folder / f"{name}.csv", names, data.data[own], diagnoses[own])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
