"""Tables as CSV, safe to open in a spreadsheet: no text in them is taken for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

_STARTS = ("=", "+", "-", "@", "\t", "\r", "'")
"""How a text begins that spreadsheets compute; the apostrophe, so that ``text_of`` is exact."""


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV.

    Args:
        header: the names of the columns.
        rows: their values; None is an empty cell.

    Returns:
        The text, with a header.

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
    """What stands in a cell for a value: a text that might be a formula has an apostrophe first."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_STARTS) else value


def quoted(text: str) -> str:
    """A text as it stands in a line of CSV, for who writes many lines that are numbers else.

    Example:
        >>> quoted("Smith, Jones")
        '"Smith, Jones"'
    """
    cell = str(cell_of(text))
    if "," in cell or '"' in cell or "\n" in cell or "\r" in cell:
        return '"' + cell.replace('"', '""') + '"'
    return cell


def text_of(cell: str) -> str:
    """The text that ``cell_of`` made a cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_STARTS) else cell
