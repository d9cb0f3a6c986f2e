"""Pages and figures made from stored results are those of the results as they are stored."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks import report
from benchmarks.results_page import common, figures

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PAGES = ROOT / "docs" / "explanation"
AGAIN = "run: python -m benchmarks report"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stored results, from which pages are made meanwhile."""
    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def change(path: Path, **values: Any) -> dict[str, Any]:
    document = json.loads(read(path))
    document.update(values)
    path.write_text(json.dumps(document), encoding="utf-8")
    return dict(document)


def test_the_pages_are_what_was_stored() -> None:
    assert report.page() == read(PAGES / "results.md"), AGAIN
    for path in report.MARKED:
        assert report.marked(path, read(path)) == read(path), AGAIN


def test_what_the_page_on_dypp_says_in_fixed_words_is_true() -> None:
    assert [claim for claim, holds in report.claims().items() if not holds] == []


def test_figures_are_drawn_from_what_is_stored() -> None:
    made = figures.drawings()
    shown = set(re.findall(r"/images/([\w-]+)\.png", read(PAGES / "results.md")))
    assert shown == made.keys()
    for name in figures.SOURCES:
        path = IMAGES / f"{name}.png"
        assert path.exists() == (name in made), f"{name}: {AGAIN}"
        if name in made:
            assert figures.drawn_from(path) == figures.digest_of(name), f"{name}: {AGAIN}"


def test_another_result_makes_another_page_and_another_digest(results: Path) -> None:
    before, page = figures.digest_of("dypp-sensitivity"), report.page()
    other = figures.digest_of("frontier")
    document = json.loads(read(results / "sensitivity.json"))
    document["rows"][1]["dypp"][0] += 0.5
    change(results / "sensitivity.json", rows=document["rows"])
    assert report.page() != page
    assert figures.digest_of("dypp-sensitivity") != before
    assert figures.digest_of("frontier") == other


def test_a_figure_carries_its_digest(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "drawn.png"
    figures.keep_png(figures.drawings()["dypp-adaptation"], path, "abc")
    assert figures.drawn_from(path) == "abc"


def test_a_claim_that_becomes_false_is_noticed(results: Path) -> None:
    document = json.loads(read(results / "lying.json"))
    for row in document["rows"]:
        if row["mechanism"] == "clock":
            row["most"][0] = 0.3
    change(results / "lying.json", rows=document["rows"])
    assert not report.claims()["lying to the clock brings nothing"]


def test_what_is_not_stored_is_said_with_its_command(results: Path) -> None:
    for path in results.glob("*.json"):
        path.unlink()
    page = report.page()
    beside = ROOT / "benchmarks" / "README.md"
    assert report.marked(beside, "as it was") == "as it was"
    for command in ("cheats --poison", "studies lying"):
        assert f"Not measured yet: `python -m benchmarks {command}` does." in page
