"""Owners' own records from CSV and Parquet files, by the description in ``columns.toml``.

Three forms, each with ``columns.toml`` beside the files:

- a folder with a file per owner (``north.csv``, ``south.parquet``, ...) and ``test.csv``, the
  curator's own records; ``owners.csv`` is not an owner's. Where owners are on their own hosts it
  has no file of theirs, and the population file says how many records each has;
- one file with the records of all owners, whose description names the ``owner_column``, and
  ``test.csv`` beside it;
- the same without ``test.csv``: of each owner's records every fifth is then the curator's.

Nothing moves a record from one owner to another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.columns import COLUMNS, Description, TableFeatures
from noisemarket.federated.data import Dataset, Labels
from noisemarket.federated.features import Floats
from noisemarket.federated.table_files import (
    ABSENT,
    OUTSIDE,
    SUFFIXES,
    Table,
    check_owner_name,
    place_of,
    read_all_owners,
    read_table,
)
from noisemarket.files import stamp

TEST = "test"
RESERVED = (TEST, "owners")
"""Names of tables in a folder that are no owner's records."""

HELD_BACK = 5
"""Without test records of the curator's own, every fifth record of an owner is one."""


@dataclass(frozen=True)
class OwnerCheck:
    """What an owner's records look like under a description, for the owner's own eyes."""

    owner: str
    records: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def is_tables(path: Path) -> bool:
    """Whether a path names tables: a CSV or Parquet file, or a folder of them."""
    if path.is_dir():
        arrays = any("-ubyte" in one.name or one.suffix == ".npy" for one in path.iterdir())
        return (path / COLUMNS).exists() or (bool(_files(path)) and not arrays)
    return path.suffix.lower() in SUFFIXES


def load_tables(path: Path) -> Dataset:
    """The owners' own records in a folder or a file, and the test records; the last is cached."""
    folder = path if path.is_dir() else path.parent
    inputs = [folder / COLUMNS, *_files(folder)]
    return _load(path, tuple((file, *stamp(file)) for file in inputs))


@lru_cache(maxsize=1)
def _load(path: Path, _stamps: tuple[tuple[object, ...], ...]) -> Dataset:
    folder = path if path.is_dir() else path.parent
    description, test = _description(folder), _test_file(folder, needed=path.is_dir())
    curators = None if test is None else read_table(test, description)
    if not path.is_dir():
        names, own = read_all_owners(path, description)
    elif files := _owner_files(folder, description):
        names, tables = tuple(files), [read_table(file, description) for file in files.values()]
        holders = np.repeat(np.arange(len(names)), list(map(len, tables)))
        own = replace(Table.joined(tables), holders=holders)
    elif curators is not None:  # the owners are elsewhere
        names, own = (), curators.some(slice(0, 0))
    if curators is not None and test is not None:
        remarks = _overlap(own, curators, test) if names else ()
    else:
        back = held_back(own.holders)
        if not back.any():
            remedy = f"has no owner of {HELD_BACK} records: put the curator's own into test.csv."
            raise BadInput("data", str(path), remedy)
        own, curators, remarks = own.some(~back), own.some(back), ()
    return named_dataset(
        description, names, own.holders, (own.records, own.labels),
        (curators.records, curators.labels), name=path.resolve().stem, source=str(path),
        remarks=remarks,
    )  # fmt: skip


def named_dataset(
    description: Description,
    names: tuple[str, ...],
    holders: NDArray[np.int64],
    own: tuple[Floats, Labels],
    test: tuple[Floats, Labels],
    *,
    name: str,
    source: str,
    remarks: tuple[str, ...] = (),
) -> Dataset:
    """A dataset of named owners' encoded records and of test records, each with labels."""
    classes = description.label.classes
    if names and (own[1] == own[1][0]).all():
        shown = classes[int(own[1][0])]
        raise BadInput("the owners' only label", shown, "give records of at least two classes.")
    for array in (*own, *test, holders):
        array.setflags(write=False)
    return Dataset(
        *own, *test, len(classes), name, source, channel=False,
        features=TableFeatures(description), owners=names, holders=holders, remarks=remarks,
    )  # fmt: skip


def check_tables(path: Path) -> tuple[list[OwnerCheck], tuple[str, ...]]:
    """Every owner's records, one after the other, and remarks about all of them.

    A fault in one file does not hide the others. An owner at home needs no test records.
    """
    if not path.exists():
        raise BadInput("data", str(path), "does not exist: name a folder, or a file of records.")
    folder = path if path.is_dir() else path.parent
    description, test = _description(folder), _test_file(folder, needed=False)
    found, tables = list[OwnerCheck](), dict[Path, Table]()
    files, remarks = list[tuple[str, Path]](), tuple[str, ...]()
    if path.is_dir():
        files = list(_owner_files(folder, description).items())
        if test is None:
            remarks = (
                f"{folder} lacks test.csv: an owner at home needs none, the curator's run does.",
            )
    elif not description.owner_column:  # the file of one owner
        files, test = [(path.stem, path)], None
    else:
        names, tables[path] = read_all_owners(path, description)
        for number, name in enumerate(names):
            part = tables[path].some(tables[path].holders == number)
            found.append(_checked(name, part, description))
    for name, file in [*files, *([] if test is None else [(test.name, test)])]:
        try:
            tables[file] = read_table(file, description)
            found.append(_checked(name, tables[file], description))
        except BadInput as problem:
            found.append(OwnerCheck(name, problem=str(problem)))
    if not found:
        raise BadInput("data", str(folder), "holds no CSV or Parquet file of records.")
    curators = None if test is None else tables.pop(test, None)
    if test is None or curators is None or not tables:
        return found, remarks
    return found, _overlap(Table.joined(tables.values()), curators, test)


# Files


def _files(folder: Path) -> list[Path]:
    """The tables in a folder, of owners and others."""
    found = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    return sorted(path for path in found if not path.name.startswith("."))


def _owner_files(folder: Path, description: Description) -> dict[str, Path]:
    """The owners' files by name."""
    files = [file for file in _files(folder) if file.stem not in RESERVED]
    seen: dict[str, Path] = {}
    for file in files:
        check_owner_name(file.stem, folder)
        other = seen.setdefault(file.stem.casefold(), file)
        if other is not file:
            remedy = f"has two files of one owner, {other.name} and {file.name}: keep one."
            raise BadInput("data", str(folder), remedy)
    if files and (column := description.owner_column):
        remedy = f"has a file per owner, but {COLUMNS} names the owner_column {column}: name the "
        remedy += f"one file instead, such as {files[0]}, or drop owner_column."
        raise BadInput("data", str(folder), remedy)
    return {file.stem: file for file in files}


def _test_file(folder: Path, *, needed: bool) -> Path | None:
    found = [file for file in _files(folder) if file.stem == TEST]
    if len(found) > 1:
        remedy = f"has {found[0].name} and {found[1].name}: keep one."
        raise BadInput("data", str(folder), remedy)
    if not found and needed:
        remedy = "does not hold test.csv: put the curator's own test records there."
        raise BadInput("data", str(folder), remedy)
    return found[0] if found else None


def _description(folder: Path) -> Description:
    if not (folder / COLUMNS).exists():
        remedy = (
            f"does not hold {COLUMNS}, the description of a record: draft one with "
            "noisemarket data describe."
        )
        raise BadInput("data", str(folder), remedy)
    return Description.read(folder / COLUMNS)


# Whole tables


def held_back(holders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The fifth, tenth, ... record of each owner, in the order of the file."""
    order = np.argsort(holders, kind="stable")
    sizes = np.bincount(holders)
    number = np.arange(len(holders)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    back = np.zeros(len(holders), bool)
    back[order] = number % HELD_BACK == HELD_BACK - 1
    return back


def _overlap(own: Table, test: Table, file: Path) -> tuple[str, ...]:
    """A remark if clearly more test records equal owners' records than these equal one another."""
    seen, times = np.unique(own.keys, return_counts=True)
    equal = np.isin(test.keys, seen)
    chance, records = float(times[times > 1].sum()) / len(own), len(test)
    if equal.sum() <= records * chance + 3 * (records * chance * (1 - chance)) ** 0.5:
        return ()
    return (
        f"{int(equal.sum()):,} of {len(test):,} records in {file.name} equal records of owners, "
        f"the first in {place_of(file, int(np.argmax(equal)))}: accuracy on them says little.",
    )


def _checked(name: str, table: Table, description: Description) -> OwnerCheck:
    counts = np.bincount(table.labels, minlength=len(description.label.classes)).tolist()
    labels = dict(zip(description.label.classes, counts, strict=True))
    outside, missing = (
        dict(zip(description.used, (table.odd == kind).sum(axis=0).tolist(), strict=True))
        for kind in (OUTSIDE, ABSENT)
    )
    return OwnerCheck(name, len(table), labels, outside, missing)
