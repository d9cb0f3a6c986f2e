"""The speed of the ledger in the documentation is the one that was measured."""

import json
from importlib import import_module

from tests.ledger.processes import ROOT


def test_the_table_is_that_of_the_stored_measurement() -> None:
    bench = vars(import_module("benchmarks.ledger"))
    stored = json.loads(bench["RESULTS"].read_text(encoding="utf-8"))
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert bench["markdown"](stored["SQLite"]) in page
    assert stored["SQLite"][-1]["entries"] >= 100_000
