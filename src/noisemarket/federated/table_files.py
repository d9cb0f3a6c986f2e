"""Reading one CSV or Parquet file of records, encoded by a description.

pyarrow reads the file in blocks; where it finds a fault, the csv module looks for its line.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.federated.columns import COLUMNS, Description, Number
from noisemarket.federated.data import Labels
from noisemarket.federated.features import Floats

PARQUET = ".parquet"
SUFFIXES = (".csv", PARQUET)
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
Batch = dict[str, Any]
"""Columns by name: floats of a number, of any other its different texts (without the spaces around
them) and which of these each record has."""


@dataclass(frozen=True)
class Table:
    """The records of a file, encoded (``TableFeatures``), and their labels.

    ``odd`` says of each value whether it is ``OUTSIDE`` of the description, or ``ABSENT``; ``keys``
    tell equal records; ``holders`` numbers the owners where a column names them.
    """

    records: Floats
    labels: Labels
    odd: NDArray[np.uint8]
    keys: Keys
    holders: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, chosen: Any) -> Table:
        return Table(*(array[chosen] for array in vars(self).values()))

    @classmethod
    def joined(cls, tables: Iterable[Table]) -> Table:
        """Tables one below the other; the numbers of their holders are left as they are."""
        columns = zip(*(vars(table).values() for table in tables), strict=True)
        return cls(*map(np.concatenate, columns))


def read_table(path: Path, description: Description) -> Table:
    """The records of a file of one owner, or of the curator."""
    return _read(path, description, "")[1]


def read_all_owners(path: Path, description: Description) -> tuple[tuple[str, ...], Table]:
    """The owners that the ``owner_column`` of a file names, in order, and the records of all."""
    if not description.owner_column:
        remedy = f"has all owners' records, so {COLUMNS} must name its owner_column."
        raise BadInput("data", str(path), remedy)
    return _read(path, description, description.owner_column)


def _read(path: Path, description: Description, owner: str) -> tuple[tuple[str, ...], Table]:
    numbers = [name for name, one in description.used.items() if isinstance(one, Number)]
    needed = [*description.used, description.label.column, *([owner] if owner else [])]
    tables, owners, row = list[Table](), dict[str, int](), 0
    for batch in _batches(path, needed, numbers):
        labels = _labels(path, description, batch, row)
        holders = np.zeros(len(labels), np.int64)
        if owner:
            texts, indices = batch[owner]
            for text in texts:
                check_owner_name(text, path)
            holders = np.array([owners.setdefault(text, len(owners)) for text in texts])[indices]
        tables.append(_encoded(description, batch, labels, holders))
        row += len(labels)
    if not row:
        raise BadInput("data", str(path), "has no record: give at least one.")
    whole, names = Table.joined(tables), sorted(owners)
    if names:
        place = np.argsort(np.argsort(list(owners)))
        whole.holders[:] = place[whole.holders]
    return tuple(names), whole


def _labels(path: Path, description: Description, batch: Batch, first: int) -> Labels:
    label = description.label
    texts, indices = batch[label.column]
    labels: Labels = np.array([label.codes.get(text, -1) for text in texts], np.int64)[indices]
    if len(wrong := np.flatnonzero(labels < 0)):
        shown = ", ".join(label.classes[:8]) + (", ..." if len(label.classes) > 8 else "")
        field = f"{label.column} in {place_of(path, first + int(wrong[0]))} of {path}"
        raise BadInput(field, texts[indices[wrong[0]]] or "nothing", f"give one of: {shown}.")
    return labels


def _encoded(
    description: Description, batch: Batch, labels: Labels, holders: NDArray[np.int64]
) -> Table:
    used, keys = description.used, labels.astype(np.uint64)
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
    return Table(records, labels, odd, keys, holders)


def _mark(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def check_owner_name(name: str, where: Path) -> None:
    """Refuse a name that no contract can have."""
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        remedy = f"name every owner by 1 to {LONGEST_NAME} printable characters."
        raise BadInput(f"an owner in {where}", name, remedy)


def columns_of(path: Path) -> dict[str, Counter[str]]:
    """Every column of a file: its different texts, and how many records have each."""
    found = dict[str, Counter[str]]()
    for batch in _batches(path):
        for name, (texts, indices) in batch.items():
            times = np.bincount(indices, minlength=len(texts)).tolist()
            one = found.setdefault(name, Counter())
            for text, count in zip(texts, times, strict=True):
                one[text] += count
    if not any(map(len, found.values())):
        raise BadInput("data", str(path), "has no record: give at least one.")
    return found


def count_records(path: Path) -> int:
    """How many records a file has, be they good or bad."""
    if path.suffix.lower() == PARQUET:
        return int(pyarrow().parquet.read_metadata(path).num_rows)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return sum(map(bool, csv.reader(lines))) - 1


def place_of(path: Path, row: int) -> str:
    """Where the record after ``row`` others begins, in words."""
    if path.suffix.lower() == PARQUET:
        return f"row {row + 1:,}"
    line, _ = next(islice(_rows(path), row + 1, None))
    return f"line {line:,}"


# The blocks of a file


def pyarrow() -> Any:
    """The reader, if it is installed."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Reading CSV and Parquet files", "tables") from None
    return pyarrow


def _batches(
    path: Path, names: list[str] | None = None, numbers: Collection[str] = ()
) -> Iterator[Batch]:
    """The records of a file with these columns, or with all of them."""
    read = _parquet_batches if path.suffix.lower() == PARQUET else _csv_batches
    return read(path, names, numbers)


def _csv_batches(path: Path, names: list[str] | None, numbers: Collection[str]) -> Iterator[Batch]:
    header = _csv_header(path)
    written = {name.strip(): name for name in header}
    wanted = _checked_names(path, list(map(str.strip, header)), names, "line 1")
    arrow = pyarrow()
    text = arrow.dictionary(arrow.int32(), arrow.string())
    types = {written[name]: arrow.float64() if name in numbers else text for name in wanted}
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
            columns = {name: batch.column(written[name]) for name in wanted}
            yield {name: _values(one, name in numbers) for name, one in columns.items()}
    except arrow.ArrowInvalid as problem:
        raise _fault(path, numbers, str(problem)) from None
    except OSError as problem:
        raise _unreadable(path, problem) from None


def _parquet_batches(
    path: Path, names: list[str] | None, numbers: Collection[str]
) -> Iterator[Batch]:
    arrow, row = pyarrow(), 1
    _check_file(path)
    try:
        with arrow.parquet.ParquetFile(path) as file:
            wanted = _checked_names(path, file.schema_arrow.names, names, "its schema")
            for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
                rows = f"rows {row:,} to {row + len(batch) - 1:,} of {path}"
                yield {
                    name: _cast(batch.column(name), f"{name} in {rows}", name in numbers)
                    for name in wanted
                }
                row += len(batch)
    except (OSError, arrow.ArrowInvalid) as problem:
        reason = getattr(problem, "strerror", None) or "not a whole Parquet file"
        raise _unreadable(path, reason) from None


def _cast(column: Any, where: str, number: bool) -> Any:
    arrow, kind = pyarrow(), column.type
    try:
        if number:
            return _values(column.cast(arrow.float64(), safe=False), number)
        if arrow.types.is_dictionary(kind):
            column = column.dictionary_decode()
        if arrow.types.is_floating(kind):  # whole numbers with gaps are often kept as floats
            values = column.to_numpy(zero_copy_only=False)
            whole = (values == np.floor(values)) & (np.abs(values) < 2**53)
            if (np.isnan(values) | whole).all():
                column = arrow.array(values, from_pandas=True).cast(arrow.int64())
        texts = column.cast(arrow.string()).fill_null("").dictionary_encode()
        return _values(texts, number)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, UnicodeDecodeError):
        wanted = "numbers" if number else "texts or numbers"
        raise BadInput(where, str(kind), f"give {wanted}.") from None


def _values(column: Any, number: bool) -> Any:
    """A column as a ``Batch`` has it."""
    if number:
        return column.to_numpy(zero_copy_only=False)
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    return texts, column.indices.to_numpy(zero_copy_only=False)


# Faults


def _check_file(path: Path) -> None:
    """Refuse what has no end or no content, such as a pipe."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadInput("data", str(path), "is not a regular file.")


def _csv_header(path: Path) -> list[str]:
    """The names in the first line of a CSV file, as they are written."""
    for _, header in _rows(path):
        return header
    remedy = "is empty: give a header of column names and at least one record."
    raise BadInput("data", str(path), remedy)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, header included, each with its first line; empty lines left out."""
    line = 0
    _check_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines)
            for values in rows:
                if values:
                    yield line + 1, values
                line = rows.line_num
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error:
        remedy = f"cannot be read from line {line + 1:,} on: is a quotation mark left open?"
        raise BadInput("data", str(path), remedy) from None
    except OSError as problem:
        raise _unreadable(path, problem) from None


def _checked_names(path: Path, names: list[str], needed: list[str] | None, where: str) -> list[str]:
    """The names of the columns that are needed, or of all."""
    if len(names) == 1:
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in names[0]:
                remedy = f"has {word} between its columns in line 1: separate them with commas."
                raise BadInput("data", str(path), remedy)
    wanted = names if needed is None else needed
    if lacking := [name for name in wanted if name not in names]:
        remedy = f"lacks {_listed(lacking)} in {where}: add what {COLUMNS} describes."
        raise BadInput("data", str(path), remedy)
    if twice := [name for name, times in Counter(names).items() if times > 1 and name in wanted]:
        raise BadInput("data", str(path), f"has {_listed(twice)} twice in {where}: keep one.")
    return wanted


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more columns"


def _fault(path: Path, numbers: Collection[str], found: str) -> BadInput:
    """The first fault of a CSV file, with its line; ``found`` is what the fast reader says."""
    names = [name.strip() for name in _csv_header(path)]
    places, records = {name: names.index(name) for name in numbers}, 0
    for line, values in islice(_rows(path), 1, None):
        records += 1
        if len(values) != len(names):
            count = f"{len(values):,} value" + "s" * (len(values) != 1)
            remedy = f"has {count} in line {line:,}, where line 1 has {len(names)} columns: "
            if len(values) < len(names):
                remedy += "separate them with commas, and leave out no column"
            else:
                remedy += "put values with commas into quotation marks"
            if any("\n" in value for value in values):
                remedy += ", and close them"
            return BadInput("data", str(path), f"{remedy}.")
        for name, at in places.items():
            text = values[at].strip(" \t")
            if text not in MISSING and not NUMBER.fullmatch(text):
                remedy = "give a number with a decimal point and no other marks, such as 1234.5."
                return BadInput(f"{name} in line {line:,} of {path}", text, remedy)
    if not records:
        return BadInput("data", str(path), "has no record after line 1: add at least one.")
    return _unreadable(path, found.splitlines()[0])


def _unreadable(path: Path, problem: OSError | str) -> BadInput:
    reason = getattr(problem, "strerror", None) or problem
    return BadInput("data", str(path), f"cannot be read ({reason}).")


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
