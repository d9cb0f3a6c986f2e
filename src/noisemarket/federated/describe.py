"""A first draft of ``columns.toml`` from the curator's own test records, never from owners'."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.columns import OTHER
from noisemarket.federated.table_files import MISSING, NUMBER, columns_of

FEWEST = 3
"""Records that a value must have to be listed: a rarer one may identify a person."""
MOST_LISTED = 50
MOST_CLASSES = 100
FEW_NUMBERS = 12
"""A column of whole numbers with no more different ones than this is taken for a category."""
UNEVEN = 0.6
"""Share of the records in one bin of equal width from which on the bins follow the records."""

Counts: TypeAlias = Mapping[str, int]

_HEAD = """\
# The public description of a record, drafted from {file}. It becomes part of every contract.
# Read every line: ranges and values should be what is generally known, not what one file has.
# kind is "number" (low, high; bins: how many, their borders, or "linear"), "category" (values;
# a text that is not listed counts as "other", if that is listed) or "ignore".
"""
_LAST = "# The label is taken to be the last column: --label names another.\n"


def describe(path: Path, label: str = "") -> str:
    """A draft of the description of records like those in a file; the label is its last column
    unless it is named."""
    columns = columns_of(path)
    said = "" if label else _LAST
    label = label or list(columns)[-1]
    if label not in columns:
        remedy = f"is no column of {path}: name one of {', '.join(columns)}."
        raise BadInput("label", label, remedy)
    classes = _sorted(columns[label])
    if not 2 <= len(classes) <= MOST_CLASSES:
        remedy = f"has {len(classes):,} different values in {path}: name a label of 2 to "
        raise BadInput("label", label, f"{remedy}{MOST_CLASSES} classes.")
    texts = ", ".join(map(_quoted, classes))
    parts = [
        _HEAD.format(file=path.name),
        f"{said}[label]\ncolumn = {_quoted(label)}\nclasses = [{texts}]\n",
    ]
    for name, counts in columns.items():
        if name != label:
            parts.append(f"[columns.{_quoted(name)}]\n{_drafted(counts)}")
    return "\n".join(parts)


def _drafted(counts: Counts) -> str:
    records, known = sum(counts.values()), [text for text in counts if text not in MISSING]
    whole = all(text.lstrip("-").isdigit() for text in known)
    if known and all(map(NUMBER.fullmatch, known)) and not (whole and len(known) <= FEW_NUMBERS):
        if whole and len(known) == records:
            return _ignored("a different whole number in every record: an identifier?")
        return _number({float(text): counts[text] for text in known})
    often = sorted(counts, key=lambda text: (-counts[text], text))
    listed = [text for text in often[:MOST_LISTED] if counts[text] >= FEWEST]
    rest = len(counts) - len(listed)
    if len(listed) + bool(rest) < 2 or 2 * sum(counts[one] for one in listed) < records:
        return _ignored(f"{len(counts):,} different values: list those that matter, if any do")
    values = _sorted(listed)
    said = ""
    if rest and OTHER not in values:
        values.append(OTHER)
        said = f"# {rest:,} rarer values count as {OTHER}\n"
    return f'{said}kind = "category"\nvalues = [{", ".join(map(_quoted, values))}]\n'


def _number(counts: Mapping[float, int]) -> str:
    values = np.repeat(list(counts), list(counts.values()))
    values = np.sort(values[np.isfinite(values)])
    if not len(values) or values[0] == values[-1]:
        return _ignored("the same number in every record")
    step = 10.0 ** (math.floor(math.log10(values[-1] - values[0])) - 1)
    low, high = math.floor(values[0] / step) * step, math.ceil(values[-1] / step) * step
    count = max(3, min(10, round(len(values) ** (1 / 3))))  # few records, few bins
    bins = str(count)
    if np.histogram(values, count, (low, high))[0].max() > UNEVEN * len(values):
        parts = np.quantile(values, np.arange(1, count) / count)
        borders = sorted({float(f"{one:.3g}") for one in parts} - {low})
        bins = f"[{', '.join(f'{one:g}' for one in borders)}]"
    return f'kind = "number"\nlow = {low:.12g}\nhigh = {high:.12g}\nbins = {bins}\n'


def _ignored(why: str) -> str:
    return f'# {why}\nkind = "ignore"\n'


def _sorted(texts: Any) -> list[str]:
    """Numbers by size, else texts by letters."""
    listed = list(texts)
    if all(map(NUMBER.fullmatch, listed)):
        return sorted(listed, key=float)
    return sorted(listed)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
