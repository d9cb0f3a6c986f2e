"""Reading one CSV or Parquet file of records, encoded by a description.

A fast reader (pyarrow) takes the file in blocks; where it finds a fault, a slow one looks for its
line.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.federated.columns import COLUMNS, Description, Label, Number
from noisemarket.federated.data import Labels
from noisemarket.federated.features import Floats

SUFFIXES = (".csv", ".parquet")
LONGEST_NAME = 200
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Texts that stand for a number that is not known."""

OUTSIDE, ABSENT = 1, 2

NUMBER = re.compile(
    r"[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE
)
"""What the fast reader takes for a number."""

_BLOCK = 4 << 20
csv.field_size_limit(_BLOCK)  # as much as the fast reader takes
_ROWS = 1 << 16

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


def read_table(path: Path, description: Description, *, owners: bool = False) -> Table:
    """The records of a file; with ``owners``, its ``owner_column`` names the owner of each."""
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
        table = joined(self._parts)
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
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        remedy = f"name every owner by 1 to {LONGEST_NAME} printable characters."
        raise BadInput(f"an owner in {where}", name, remedy)


def joined(tables: Sequence[Table]) -> Table:
    """Tables one below the other; the numbers of their holders are left as they are."""

    def whole(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(table, name) for table in tables])

    return Table(whole("records"), whole("labels"), whole("odd"), whole("keys"), whole("holders"))


def pyarrow() -> Any:
    """The reader, if it is installed."""
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
    arrow = pyarrow()
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


def count_records(path: Path) -> int:
    """How many records a file has, be they good or bad."""
    if path.suffix.lower() == ".parquet":
        return int(pyarrow().parquet.read_metadata(path).num_rows)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return sum(map(bool, csv.reader(lines))) - 1


def place_of(path: Path, row: int) -> str:
    """Where the record after ``row`` others begins, in words."""
    if path.suffix.lower() == ".parquet":
        return f"row {row + 1:,}"
    with path.open(encoding="utf-8-sig", newline="") as lines:
        line, _ = next(islice(_numbered(lines), row + 1, None))
    return f"line {line:,}"


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, header included, each with its first line; empty lines left out."""
    rows, line = csv.reader(lines), 0
    for values in rows:
        if values:
            yield line + 1, values
        line = rows.line_num


def columns_of(path: Path) -> dict[str, dict[str, int]]:
    """Every column of a file: its different texts, and how many records have each."""
    arrow = pyarrow()
    if path.suffix.lower() == ".parquet":
        with _parquet(path) as file:
            names = file.schema_arrow.names
            _check_header(path, names, names, "its schema")
            table = file.read()
            texts = {
                name: _cast(table[name].combine_chunks(), f"{name} of {path}") for name in names
            }
    else:
        header = csv_header(path)
        _check_header(path, header, header, "line 1")
        kind = arrow.dictionary(arrow.int32(), arrow.string())
        try:
            table = arrow.csv.read_csv(
                path,
                parse_options=arrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=arrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(header, kind), strings_can_be_null=False
                ),
            )
        except arrow.ArrowInvalid as problem:
            raise _fault(path, None, None, str(problem)) from None
        texts = {
            name.strip(): _texts(table[name].unify_dictionaries().combine_chunks())
            for name in header
        }
    if not table.num_rows:
        raise BadInput("data", str(path), "has no record: give at least one.")
    found = {}
    for name, (values, indices) in texts.items():
        times = np.bincount(indices, minlength=len(values)).tolist()
        found[name] = {value: count for value, count in zip(values, times, strict=True) if count}
    return found


def _parquet_batches(
    path: Path, description: Description, needed: list[str]
) -> Iterator[dict[str, Any]]:
    row = 1
    with _parquet(path) as file:
        _check_header(path, file.schema_arrow.names, needed, "its schema")
        for batch in file.iter_batches(batch_size=_ROWS, columns=needed):
            rows = f"rows {row:,} to {row + len(batch) - 1:,} of {path}"
            numbers = [isinstance(description.used.get(name), Number) for name in needed]
            yield {
                name: _cast(batch.column(name), f"{name} in {rows}", number)
                for name, number in zip(needed, numbers, strict=True)
            }
            row += len(batch)


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    arrow = pyarrow()
    try:
        _check_file(path)
        with arrow.parquet.ParquetFile(path) as file:
            yield file
    except (OSError, arrow.ArrowInvalid) as problem:
        reason = getattr(problem, "strerror", None) or "not a whole Parquet file"
        raise BadInput("data", str(path), f"cannot be read ({reason}).") from None


def _cast(column: Any, where: str, number: bool = False) -> Any:
    arrow, kind = pyarrow(), column.type
    try:
        if number:
            return _floats(column.cast(arrow.float64(), safe=False))
        if arrow.types.is_dictionary(kind):
            column = column.dictionary_decode()
        if arrow.types.is_floating(kind):  # whole numbers with gaps are often kept as floats
            values = column.to_numpy(zero_copy_only=False)
            whole = (values == np.floor(values)) & (np.abs(values) < 2**53)
            if (np.isnan(values) | whole).all():
                column = arrow.array(values, from_pandas=True).cast(arrow.int64())
        return _texts(column.cast(arrow.string()).fill_null("").dictionary_encode())
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, UnicodeDecodeError):
        wanted = "numbers" if number else "texts or numbers"
        raise BadInput(where, str(kind), f"give {wanted}.") from None


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


def _check_file(path: Path) -> None:
    """Refuse what has no end or no content, such as a pipe."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadInput("data", str(path), "is not a regular file.")


def csv_header(path: Path) -> list[str]:
    """The names in the first line of a CSV file, as they are written."""
    try:
        _check_file(path)
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
    twice = [name for name in dict.fromkeys(needed) if names.count(name) > 1]
    if twice:
        raise BadInput("data", str(path), f"has {_listed(twice)} twice in {where}: keep one.")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more columns"


def _fault(path: Path, description: Description | None, row: int | None, found: str) -> BadInput:
    """The first fault of a file, with its line; ``row`` and ``found`` are of the fast reader."""
    label = description.label if description else None
    if label and path.suffix.lower() == ".parquet":
        return _bad_label(label, f"row {(row or 0) + 1:,}", path, found)
    names, records = [name.strip() for name in csv_header(path)], 0
    used = description.used.items() if description else ()
    numbers = {name: names.index(name) for name, column in used if isinstance(column, Number)}
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines)
            next(rows)
            line = rows.line_num
            for values in rows:
                where, line = f"line {line + 1:,}", rows.line_num
                if not values:
                    continue
                records += 1
                if len(values) != len(names):
                    count = f"{len(values):,} value" + "s" * (len(values) != 1)
                    remedy = f"has {count} in {where}, where line 1 has {len(names)} columns: "
                    if len(values) < len(names):
                        remedy += "separate them with commas, and leave out no column"
                    else:
                        remedy += "put values with commas into quotation marks"
                    if any("\n" in value for value in values):
                        remedy += ", and close them"
                    return BadInput("data", str(path), f"{remedy}.")
                for name, at in numbers.items():
                    text = values[at].strip(" \t")
                    if text not in MISSING and not NUMBER.fullmatch(text):
                        remedy = "give a number with a decimal point and no other marks, such as "
                        return BadInput(f"{name} in {where} of {path}", text, f"{remedy}1234.5.")
                if label and (text := values[names.index(label.column)].strip()) not in label.codes:
                    return _bad_label(label, where, path, text)
    except UnicodeDecodeError:
        return _not_utf8(path)
    except csv.Error:
        remedy = f"cannot be read from line {line + 1:,} on: is a quotation mark left open?"
        return BadInput("data", str(path), remedy)
    if not records:
        return BadInput("data", str(path), "has no record after line 1: add at least one.")
    return BadInput("data", str(path), f"cannot be read ({found.splitlines()[0]}).")


def _bad_label(label: Label, where: str, path: Path, found: str) -> BadInput:
    shown = ", ".join(label.classes[:8]) + (", ..." if len(label.classes) > 8 else "")
    field = f"{label.column} in {where} of {path}"
    return BadInput(field, found or "nothing", f"give one of: {shown}.")


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
