"""Reading owners from a file: a CSV with a header, or a TOML with one ``[[owner]]`` each."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.files import read_text, toml_in
from noisemarket.game.population import FIELDS, OPTIONAL, Population

SECRETS = ("privacy_cost", "markup", "floor")
"""What a curator does not need to know about its owners."""

LONGEST_NAME = 200
"""Characters that the name of an owner may have."""


def read_population(
    file: str,
    owners: int | None = None,
    *,
    secrets: bool = True,
    records: Mapping[str, int] | None = None,
) -> Population:
    """The owners in ``file``: columns privacy_cost, data_size, beta, markup, and
    perhaps owner and floor.

    Without ``secrets``, the file may lack these, and they are 0 in any case. Where the data names
    its owners, ``records`` says how many each has: the rows belong to them by name.
    """
    used = [name for name in FIELDS if secrets or name not in SECRETS]
    needed = [name for name in used if name not in (*OPTIONAL, *(["data_size"] if records else []))]
    read = _toml_rows if Path(file).suffix == ".toml" else _csv_rows
    rows = read(read_text("population.file", file), file, needed)
    if not rows:
        raise BadInput("population.file", file, "give at least one owner.")
    if owners is not None and owners != len(rows):
        raise BadInput(
            "population.owners", owners, f"{file} has {len(rows)} owners: give only one of the two."
        )
    names = [row.get("owner", str(i)) for i, row in enumerate(rows)]
    for name in names:
        _check_name(name, file)
    most_common = Counter(names).most_common(1)[0]
    if most_common[1] > 1:
        raise BadInput("owner", most_common[0], f"name every owner in {file} once.")
    if records:
        _check_owners(names, records, file)
    columns = dict.fromkeys(FIELDS, np.zeros(len(rows))) | {
        name: np.array(
            [_number(row.get(name, "0"), name, i + 1, file) for i, row in enumerate(rows)]
        )
        for name in used
    }
    if records:
        columns["data_size"] = np.array([float(records[name]) for name in names])
    return Population.of(names, columns)


def _check_owners(names: Sequence[str], records: Mapping[str, int], file: str) -> None:
    """Refuse a file whose owners are not those of the data."""
    lacking = [name for name in records if name not in names]
    odd = [name for name in names if name not in records]
    said = [f"lacks {', '.join(lacking[:5])}"] * bool(lacking)
    said += [f"has {', '.join(odd[:5])} without records"] * bool(odd)
    if said:
        remedy = f"{' and '.join(said)}: give one row for each owner of the data, by its name."
        raise BadInput("population.file", file, remedy)


def _csv_rows(text: str, file: str, needed: Sequence[str]) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    if reader.fieldnames and len(reader.fieldnames) == 1 and ";" in reader.fieldnames[0]:
        raise BadInput("population.file", file, "separate the columns with commas.")
    _check_columns(reader.fieldnames or (), needed, file, "the header")
    rows = []
    try:
        for i, row in enumerate(reader, start=1):
            if None in row or None in row.values():
                raise BadInput("population.file", file, f"row {i} must have one value per column.")
            rows.append(row)
    except csv.Error as problem:
        raise BadInput("population.file", file, f"is not a CSV file: {problem}.") from None
    return rows


def _toml_rows(text: str, file: str, needed: Sequence[str]) -> list[dict[str, str]]:
    document = toml_in("population.file", file, text)
    tables: Any = document.get("owner")
    listed = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
    if not listed or set(document) != {"owner"}:
        raise BadInput("population.file", file, "write one [[owner]] table per owner.")
    for i, table in enumerate(tables, start=1):
        _check_columns(table, needed, file, f"owner {i}")
    return [{key: str(value) for key, value in table.items()} for table in tables]


def _check_columns(given: Iterable[str], needed: Sequence[str], file: str, where: str) -> None:
    found = list(given)
    for name, times in Counter(found).items():
        if times > 1:
            raise BadInput("population.file", file, f'{where} has "{name}" twice: keep one.')
    for name in needed:
        if name not in found:
            raise BadInput("population.file", file, f"{where} lacks {name}: add it.")
    for name in found:
        if name not in (*FIELDS, "owner"):
            allowed = ", ".join(("owner", *FIELDS))
            raise BadInput(
                "population.file", file, f'{where} has unknown "{name}": use only {allowed}.'
            )


def _check_name(name: str, file: str) -> None:
    """Refuse, before anything is written, a name that no contract can have."""
    if not name:
        raise BadInput("owner", "", f"give every owner in {file} a name.")
    if not name.isprintable():
        raise BadInput("owner", name, f"name every owner in {file} by printable characters.")
    if len(name) > LONGEST_NAME:
        remedy = f"give every owner in {file} a name of at most {LONGEST_NAME} characters."
        raise BadInput("owner", name, remedy)


def _number(text: str, name: str, row: int, file: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise BadInput(f"{name} in row {row} of {file}", text, "give a finite number.")
    return value
