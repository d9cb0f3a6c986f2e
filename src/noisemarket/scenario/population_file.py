"""Reading owners from a CSV file with a header."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from noisemarket.errors import BadInput, printable
from noisemarket.files import read_text
from noisemarket.game.levels import FloatArray
from noisemarket.game.population import FIELDS, Population, bad_values

SECRETS = ("privacy_cost", "markup", "floor")
"""What a curator does not need to know about its owners."""

LONGEST_NAME = 200
"""Characters that the name of an owner may have."""

_SHOWN = 20


@dataclass(frozen=True)
class OwnersFile:
    """The owners in a file: their names, and the columns that it has."""

    names: tuple[str, ...]
    columns: Mapping[str, FloatArray]

    def __len__(self) -> int:
        return len(self.names)

    def population(self, drawn: Population) -> Population:
        """These owners; what the file does not say of them is as ``drawn``."""
        return Population.of(
            self.names, {name: getattr(drawn, name) for name in FIELDS} | dict(self.columns)
        )


def read_owners(
    file: str, *, secrets: bool = True, records: Mapping[str, int] | None = None
) -> OwnersFile:
    """The owners in ``file``: columns owner, privacy_cost, data_size, beta, markup and floor, of
    which any may be missing.

    Without ``secrets``, these are 0 whatever the file says. Where the data names its owners,
    ``records`` says how many each has: the rows belong to them by name. All problems are named in
    one error.
    """
    problems = list[str]()
    rows = list(_csv_rows(read_text("population.file", file), file, problems))
    if not rows and not problems:
        problems.append("give at least one owner")
    names = [row.get("owner", str(number)) for number, (_, row) in enumerate(rows)]
    places = [place for place, _ in rows]
    problems += _bad_names(names, places)
    if records:
        problems += _other_owners(names, records)
    columns = dict[str, FloatArray]()
    for name in FIELDS:
        if not secrets and name in SECRETS:
            columns[name] = np.zeros(len(rows))
        elif any(name in row for _, row in rows):
            columns[name] = np.array([_number(row.get(name, "")) for _, row in rows])
            for at, remedy in bad_values(name, columns[name]):
                problems.append(f"{name} in {places[at]} is {rows[at][1].get(name)}: {remedy}")
    if problems:
        more = len(problems) - _SHOWN
        shown = problems[:_SHOWN] + [f"and {more:,} more problems"] * (more > 0)
        raise BadInput("population.file", file, f"cannot be used: {'; '.join(shown)}.")
    if records:
        columns["data_size"] = np.array([float(records[name]) for name in names])
    return OwnersFile(tuple(names), columns)


Row = tuple[str, dict[str, str]]
"""Where a row stands, and what it says."""


def _csv_rows(text: str, file: str, problems: list[str]) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    if reader.fieldnames and len(reader.fieldnames) == 1 and ";" in reader.fieldnames[0]:
        raise BadInput("population.file", file, "separate the columns with commas.")
    problems += _odd_columns(reader.fieldnames or ())
    try:
        for row in reader:
            if None in row or None in row.values():
                problems.append(f"line {reader.line_num} must have one value per column")
            else:
                yield f"line {reader.line_num}", row
    except csv.Error as problem:
        raise BadInput("population.file", file, f"is not a CSV file: {problem}.") from None


def _odd_columns(given: Iterable[str]) -> Iterator[str]:
    allowed = ("owner", *FIELDS)
    found = Counter(list(given))
    for name, times in found.items():
        if times > 1:
            yield f'the header has "{name}" twice: keep one'
        elif name not in allowed:
            yield f'the header has unknown "{name}": use only {", ".join(allowed)}'
    if not found.keys() & set(allowed):
        yield f"the header names no column: give some of {', '.join(allowed)}"


def _bad_names(names: list[str], places: list[str]) -> Iterator[str]:
    """Names that no contract can have, found before anything is written."""
    first = dict[str, str]()
    for name, place in zip(names, places, strict=True):
        if not name.strip():
            yield f"{place} lacks the name of its owner"
        elif not name.isprintable():
            yield f"owner {printable(name)} in {place}: name it by printable characters"
        elif len(name) > LONGEST_NAME:
            yield f"{place} has a name of more than {LONGEST_NAME} characters"
        elif first.setdefault(name, place) != place:
            yield f"owner {name} stands in {first[name]} and in {place}: keep one"


def _other_owners(names: list[str], records: Mapping[str, int]) -> Iterator[str]:
    """How the owners of the file differ from those of the data."""
    lacking = [name for name in records if name not in names]
    odd = [name for name in names if name not in records]
    if lacking:
        yield f"it lacks {', '.join(lacking)}, whose records the data has"
    if odd:
        yield f"it has {', '.join(odd)} without records"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
