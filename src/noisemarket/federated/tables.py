"""Owners' own records from CSV and Parquet files, by the description in ``columns.toml``.

Three forms, each with ``columns.toml`` beside the files:

- a folder with a file per owner (``north.csv``, ``south.parquet``, ...) and ``test.csv``, the
  curator's own records; ``owners.csv`` and ``owners.toml`` are no records;
- one file with the records of all owners, whose description names the ``owner_column``, and
  ``test.csv`` beside it;
- the same without ``test.csv``: of each owner's records every fifth is then the curator's.

Nothing moves a record from one owner to another. A fast reader (pyarrow) takes the file in blocks;
where it finds a fault, a slow one looks for its line.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.federated.columns import COLUMNS, Description, Number, TableFeatures
from noisemarket.federated.data import Dataset, Labels
from noisemarket.federated.features import Floats

SUFFIXES = (".csv", ".parquet")
TEST = "test"
RESERVED = (TEST, "owners")
"""Names of tables in a folder that are no owner's records."""

HELD_BACK = 5
"""Without test records of the curator's own, every so-manieth record of an owner is one."""

LONGEST_NAME = 200
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Texts that stand for a number that is not known."""

OUTSIDE, ABSENT = 1, 2

_BLOCK = 4 << 20
_ROWS = 1 << 16
_NUMBER = re.compile(r"[-]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf(inity)?", re.IGNORECASE)

Keys = NDArray[np.uint64]


@dataclass
class Table:
    """The records of a file, encoded (``TableFeatures``), and their labels.

    ``odd`` says of each value whether it is ``OUTSIDE`` of the description, or ``ABSENT``; ``keys``
    tell equal records; ``holders`` numbers the owners in ``names`` where a column names them.
    """

    records: Floats
    labels: Labels
    odd: NDArray[np.uint8]
    keys: Keys
    holders: NDArray[np.int64]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


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
        return (path / COLUMNS).exists() or bool(_files(path))
    return path.suffix.lower() in SUFFIXES


def load_tables(path: Path) -> Dataset:
    """The owners' own records in a folder or a file, and the test records; the last is cached."""
    inputs = _inputs(path)
    return _load(path, tuple((file, *_stamp(file)) for file in inputs))


@lru_cache(maxsize=1)
def _load(path: Path, _stamps: tuple[tuple[object, ...], ...]) -> Dataset:
    folder = path if path.is_dir() else path.parent
    description = _description(folder)
    if path.is_dir():
        files = _owner_files(folder)
        tables = [read_table(file, description) for file in files.values()]
        names = tuple(files)
        own = _joined(tables)
        own.holders = np.repeat(np.arange(len(names)), [len(table) for table in tables])
    else:
        own = read_table(path, description, owners=True)
        names = tuple(sorted(own.names))
        own.holders = np.array([names.index(name) for name in own.names])[own.holders]
    test = _test_file(folder, needed=path.is_dir())
    if test is not None:
        curators = read_table(test, description)
        remarks = _overlap(own, curators, test)
    else:
        back = held_back(own.holders)
        if not back.any():
            remedy = f"has no owner of {HELD_BACK} records: put the curator's own into test.csv."
            raise BadInput("data", str(path), remedy)
        own, curators, remarks = _some(own, ~back), _some(own, back), ()
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
    if (own[1] == own[1][0]).all():
        shown = f"{classes[int(own[1][0])]} alone"
        raise BadInput("the owners' labels", shown, "give records of at least two classes.")
    for array in (*own, *test, holders):
        array.setflags(write=False)
    return Dataset(
        *own, *test, len(classes), name, source, channel=False,
        features=TableFeatures(description), owners=names, holders=holders, remarks=remarks,
    )  # fmt: skip


def check_tables(path: Path) -> list[OwnerCheck]:
    """Every owner's records, one after the other; a fault in one file does not hide the others."""
    if not path.is_dir():
        description = _description(path.parent)
        own = read_table(path, description, owners=True)
        parts = [(name, _some(own, own.holders == at)) for at, name in enumerate(own.names)]
        return [_checked(name, part, description) for name, part in sorted(parts)]
    description = _description(path)
    files = _owner_files(path)
    if (test := _test_file(path, needed=False)) is not None:
        files = files | {test.name: test}
    found = []
    for name, file in files.items():
        try:
            found.append(_checked(name, read_table(file, description), description))
        except BadInput as problem:
            found.append(OwnerCheck(name, problem=str(problem)))
    return found


def read_table(path: Path, description: Description, *, owners: bool = False) -> Table:
    """The records of a file; with ``owners``, its ``owner_column`` names who holds each."""
    if owners and not description.owner_column:
        remedy = f"has all owners' records, so {COLUMNS} must name its owner_column."
        raise BadInput("data", str(path), remedy)
    needed = [*description.used, description.label.column]
    if owners:
        needed.append(description.owner_column)
    read = _parquet_batches if path.suffix.lower() == ".parquet" else _csv_batches
    encoder = _Encoder(path, description, description.owner_column if owners else "")
    for batch in read(path, description, needed):
        encoder.add(batch)
    return encoder.table()


class _Encoder:
    """Collects a file's batches as one table."""

    def __init__(self, path: Path, description: Description, owner_column: str) -> None:
        self._path, self._description, self._owner_column = path, description, owner_column
        self._parts: list[Table] = []
        self._owners: dict[str, int] = {}

    def add(self, batch: dict[str, Any]) -> None:
        """A batch: floats of a number's column, ``(texts, indices)`` of any other."""
        label, used = self._description.label, self._description.used
        labels = self._labels(*batch[label.column])
        keys = labels.astype(np.uint64)
        records = np.empty((len(labels), len(used)), np.float32)
        odd = np.zeros((len(labels), len(used)), np.uint8)
        for at, (name, column) in enumerate(used.items()):
            if isinstance(column, Number):
                values = batch[name]
                records[:, at] = column.encode(values)
                odd[:, at] = (values < column.low) | (values > column.high)
                odd[np.isnan(values), at] = ABSENT
                marks = (values + 0.0).view(np.uint64)  # there are two zeros
            else:
                texts, indices = batch[name]
                codes = np.array([column.codes.get(text, -1) for text in texts], np.int64)
                strange = np.array([OUTSIDE if text else ABSENT for text in texts], np.uint8)
                records[:, at] = np.where(codes < 0, column.other, codes)[indices]
                odd[:, at] = np.where(codes < 0, strange, 0)[indices]
                marks = np.array([_mark(text) for text in texts], np.uint64)[indices]
            keys = (keys ^ marks) * np.uint64(0x9E3779B97F4A7C15)
            keys ^= keys >> np.uint64(29)
        holders = np.zeros(len(labels), np.int64)
        if self._owner_column:
            texts, indices = batch[self._owner_column]
            for text in texts:
                check_owner_name(text, self._path)
            numbers = [self._owners.setdefault(text, len(self._owners)) for text in texts]
            holders = np.array(numbers, np.int64)[indices]
        self._parts.append(Table(records, labels, odd, keys, holders))

    def table(self) -> Table:
        if not any(map(len, self._parts)):
            raise BadInput("data", str(self._path), "has no record: give at least one.")
        table = _joined(self._parts)
        table.names = tuple(self._owners)
        return table

    def _labels(self, texts: list[str], indices: NDArray[np.int32]) -> Labels:
        codes = self._description.label.codes
        labels: Labels = np.array([codes.get(text, -1) for text in texts], np.int64)[indices]
        if len(wrong := np.flatnonzero(labels < 0)):
            row = sum(map(len, self._parts)) + int(wrong[0])
            raise _fault(self._path, self._description, row, texts[indices[wrong[0]]])
        return labels


def check_owner_name(name: str, where: Path) -> None:
    """Refuse a name that no contract can have."""
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        remedy = f"name every owner by 1 to {LONGEST_NAME} printable characters."
        raise BadInput(f"an owner in {where}", name, remedy)


# Files


def _files(folder: Path) -> list[Path]:
    """The tables in a folder, of owners and others."""
    found = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    return sorted(path for path in found if not path.name.startswith("."))


def _owner_files(folder: Path) -> dict[str, Path]:
    """The owners' files by name."""
    files = [file for file in _files(folder) if file.stem not in RESERVED]
    if not files:
        remedy = "has no owner's file: put a .csv or .parquet file per owner there."
        raise BadInput("data", str(folder), remedy)
    seen: dict[str, Path] = {}
    for file in files:
        check_owner_name(file.stem, folder)
        other = seen.setdefault(file.stem.casefold(), file)
        if other is not file:
            remedy = f"has two files of one owner, {other.name} and {file.name}: keep one."
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


def _inputs(path: Path) -> list[Path]:
    folder = path if path.is_dir() else path.parent
    return [folder / COLUMNS, path, *_files(folder)] if path.is_dir() else [
        folder / COLUMNS, path, *(folder / f"{TEST}{suffix}" for suffix in SUFFIXES),
    ]  # fmt: skip


def _stamp(path: Path) -> tuple[int, ...]:
    """Tells a file from any other, and from itself once it has changed; empty if it is missing."""
    try:
        seen = path.stat()
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


# Whole tables


def _joined(tables: list[Table]) -> Table:
    names = ("records", "labels", "odd", "keys", "holders")
    parts = (np.concatenate([getattr(table, name) for table in tables]) for name in names)
    return Table(*parts)


def _some(table: Table, chosen: NDArray[np.bool_]) -> Table:
    return Table(
        table.records[chosen], table.labels[chosen], table.odd[chosen], table.keys[chosen],
        table.holders[chosen],
    )  # fmt: skip


def held_back(holders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The fifth, tenth, ... record of each owner, in the order of the file."""
    order = np.argsort(holders, kind="stable")
    sizes = np.bincount(holders)
    number = np.arange(len(holders)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    back = np.zeros(len(holders), bool)
    back[order] = number % HELD_BACK == HELD_BACK - 1
    return back


def _overlap(own: Table, test: Table, file: Path) -> tuple[str, ...]:
    """A remark if more test records equal owners' records than these equal one another."""
    seen, times = np.unique(own.keys, return_counts=True)
    equal = np.isin(test.keys, seen)
    chance = float(times[times > 1].sum()) / len(own)
    if equal.mean() <= chance:
        return ()
    return (
        f"{int(equal.sum()):,} of {len(test):,} records in {file.name} equal records of owners, "
        f"the first in record {int(np.argmax(equal)) + 1:,}: accuracy on them says little.",
    )


def _checked(name: str, table: Table, description: Description) -> OwnerCheck:
    counts = np.bincount(table.labels, minlength=len(description.label.classes)).tolist()
    labels = dict(zip(description.label.classes, counts, strict=True))
    outside, missing = (
        dict(zip(description.used, (table.odd == kind).sum(axis=0).tolist(), strict=True))
        for kind in (OUTSIDE, ABSENT)
    )
    return OwnerCheck(name, len(table), labels, outside, missing)


# Reading


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Reading CSV and Parquet files", "tables") from None
    return pyarrow


def _csv_batches(
    path: Path, description: Description, needed: list[str]
) -> Iterator[dict[str, Any]]:
    header = csv_header(path)
    written = {name.strip(): name for name in header}
    _check_header(path, [name.strip() for name in header], needed, "line 1")
    arrow = _pyarrow()
    text = arrow.dictionary(arrow.int32(), arrow.string())
    numbers = {name for name, column in description.used.items() if isinstance(column, Number)}
    types = {written[name]: arrow.float64() if name in numbers else text for name in needed}
    try:
        reader = arrow.csv.open_csv(
            path,
            read_options=arrow.csv.ReadOptions(block_size=_BLOCK),
            parse_options=arrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow.csv.ConvertOptions(
                include_columns=list(types), column_types=types, null_values=list(MISSING),
                strings_can_be_null=False,
            ),
        )  # fmt: skip
        for batch in reader:
            columns = {name: batch.column(written[name]) for name in needed}
            yield {
                name: _floats(column) if name in numbers else _texts(column)
                for name, column in columns.items()
            }
    except arrow.ArrowInvalid as problem:
        raise _fault(path, description, None, str(problem)) from None
    except OSError as problem:
        reason = problem.strerror or problem
        raise BadInput("data", str(path), f"cannot be read ({reason}).") from None


def _parquet_batches(
    path: Path, description: Description, needed: list[str]
) -> Iterator[dict[str, Any]]:
    arrow = _pyarrow()
    try:
        file = arrow.parquet.ParquetFile(path)
    except (OSError, arrow.ArrowInvalid) as problem:
        reason = getattr(problem, "strerror", None) or "not a Parquet file"
        raise BadInput("data", str(path), f"cannot be read ({reason}).") from None
    _check_header(path, file.schema_arrow.names, needed, "its schema")
    row = 1
    with file:
        for batch in file.iter_batches(batch_size=_ROWS, columns=needed):
            found = {}
            for name in needed:
                number = isinstance(description.used.get(name), Number)
                try:
                    found[name] = _cast(arrow, batch.column(name), number)
                except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
                    wanted = "numbers" if number else "texts or numbers"
                    rows = f"rows {row:,} to {row + len(batch) - 1:,} of {path}"
                    kind = str(batch.column(name).type)
                    raise BadInput(f"{name} in {rows}", kind, f"give {wanted}.") from None
            row += len(batch)
            yield found


def _cast(arrow: Any, column: Any, number: bool) -> Any:
    if number:
        return _floats(column.cast(arrow.float64()))
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.types.is_floating(column.type):  # whole numbers with gaps are often kept as floats
        values = column.to_numpy(zero_copy_only=False)
        if (np.isnan(values) | (values == np.floor(values))).all():
            column = arrow.array(values, from_pandas=True).cast(arrow.int64())
    return _texts(column.cast(arrow.string()).fill_null("").dictionary_encode())


def _floats(column: Any) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
    return values


def _texts(column: Any) -> tuple[list[str], NDArray[np.int32]]:
    """The texts of a column without spaces around them, and which each record has."""
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    return texts, column.indices.to_numpy(zero_copy_only=False)


def _mark(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


# Faults


def csv_header(path: Path) -> list[str]:
    """The names in the first line of a CSV file, as they are written."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines), None)
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except (OSError, csv.Error) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise BadInput("data", str(path), f"cannot be read ({reason}).") from None
    if not header:
        remedy = "is empty: give a header of column names and at least one record."
        raise BadInput("data", str(path), remedy)
    return header


def _check_header(path: Path, names: list[str], needed: list[str], where: str) -> None:
    if len(names) == 1:
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in names[0]:
                remedy = f"has {word} between its columns in line 1: separate them with commas."
                raise BadInput("data", str(path), remedy)
    lacking = [name for name in needed if name not in names]
    if lacking:
        remedy = f"lacks {_listed(lacking)} in {where}: add what {COLUMNS} describes."
        raise BadInput("data", str(path), remedy)
    twice = [name for name in needed if names.count(name) > 1]
    if twice:
        raise BadInput("data", str(path), f"has {_listed(twice)} twice in {where}: keep one.")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more columns"


def _fault(path: Path, description: Description, row: int | None, found: str) -> BadInput:
    """The first fault of a file, with its line; ``row`` and ``found`` are of the fast reader."""
    label = description.label
    if path.suffix.lower() == ".parquet":
        return _bad_label(label.column, f"row {(row or 0) + 1:,}", path, found, label.classes)
    names = [name.strip() for name in csv_header(path)]
    numbers = [n for n, column in description.used.items() if isinstance(column, Number)]
    positions = {name: names.index(name) for name in (*numbers, label.column)}
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines)
            next(rows)
            for values in rows:
                line, before = rows.line_num, line
                where = f"line {before + 1:,}"
                if not values:
                    continue
                if len(values) != len(names):
                    count = f"{len(values):,} value" + "s" * (len(values) != 1)
                    remedy = f"has {count} in {where}, where line 1 has {len(names)} columns: "
                    remedy += "put values with commas into quotation marks"
                    if any("\n" in value for value in values):
                        remedy += ", and close them"
                    return BadInput("data", str(path), f"{remedy}.")
                for name in numbers:
                    text = values[positions[name]].strip()
                    if text not in MISSING and not _NUMBER.fullmatch(text):
                        remedy = "give a number with a decimal point and no other marks, such as "
                        return BadInput(f"{name} in {where} of {path}", text, f"{remedy}1234.5.")
                text = values[positions[label.column]].strip()
                if text not in label.codes:
                    return _bad_label(label.column, where, path, text, label.classes)
    except UnicodeDecodeError:
        return _not_utf8(path)
    except csv.Error:
        remedy = f"cannot be read from line {line + 1:,} on: is a quotation mark left open?"
        return BadInput("data", str(path), remedy)
    reason = found.splitlines()[0] if found else "no reason given"
    return BadInput("data", str(path), f"cannot be read ({reason}).")


def _bad_label(
    column: str, where: str, path: Path, found: str, classes: tuple[str, ...]
) -> BadInput:
    shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
    return BadInput(f"{column} in {where} of {path}", found or "nothing", f"give one of: {shown}.")


def _not_utf8(path: Path) -> BadInput:
    """The error that names the line of the first byte that is not UTF-8."""
    content = path.read_bytes()
    try:
        content.decode()
        return BadInput("data", str(path), "cannot be read.")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        shown = f"0x{content[problem.start]:02x}"
    return BadInput("data", str(path), f"has the byte {shown} in line {line:,}: save it as UTF-8.")
