"""Values in JSON (``null`` for a number that is not finite), CSV (safe from formulas) and words."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "'")
"""How a text begins that spreadsheets compute; the apostrophe, so that ``text_of`` is exact."""


def finite(value: float) -> float | None:
    """The number for JSON: None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def infinite(value: Any) -> float:
    """The number from JSON: infinity where it is None; ValueError if it is no number."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


Infinite = Annotated[float, BeforeValidator(infinite), PlainSerializer(finite)]
"""A number that may be infinite, for pydantic: JSON has null for it."""


def least_median_most(values: Sequence[float]) -> dict[str, float | None]:
    """The range of some numbers, for JSON."""
    shown = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: finite(value) for name, value in shown.items()}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for JSON: None for floats that are not finite, choices by their names."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return finite(value)
    return str(value) if isinstance(value, StrEnum) else value


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV with a header; None is an empty cell.

    Example:
        >>> print(csv_text(["owner", "paid"], [["=1+1", -2.5]]), end="")
        owner,paid
        '=1+1,-2.5
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([cell_of(one) if isinstance(one, str) else one for one in row] for row in rows)
    return text.getvalue()


def cell_of(value: object) -> object:
    """The cell for a value: a text that could be a formula gets an apostrophe first."""
    formula = isinstance(value, str) and value.startswith(_FORMULA_STARTS)
    return f"'{value}" if formula else value


def text_of(cell: str) -> str:
    """The text that ``cell_of`` made a cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA_STARTS) else cell


def few(names: Sequence[str]) -> str:
    """The first of these names."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
