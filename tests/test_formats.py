"""Tables that a spreadsheet may open: no name in them is a formula, and every name comes back."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from noisemarket.formats import cell_of, csv_text, text_of


@given(st.text())
def test_every_text_comes_back_and_none_is_a_formula(text: str) -> None:
    cell = cell_of(text)
    assert isinstance(cell, str)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert text_of(cell) == text


def test_rows_are_those_that_were_given() -> None:
    names = ["=1+1", "@SUM(A1)", "'=x", "a, b", 'c"d', "+31", "plain"]
    text = csv_text(["owner", "paid", "note"], [[name, -2.5, None] for name in names])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [text_of(row["owner"]) for row in rows] == names
    assert {row["paid"] for row in rows} == {"-2.5"}
    assert {row["note"] for row in rows} == {""}
    assert "'=1+1,-2.5," in text
