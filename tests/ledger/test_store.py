"""The ledger on both databases, and in a store that another package brings."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.ledger.common import Job, key
from tests.ledger.conformance import LedgerConformance
from tests.ledger.sql_conformance import SqlConformance

from noisemarket import load_scenario
from noisemarket.errors import BadInput
from noisemarket.ledger.ledger_errors import LedgerLost
from noisemarket.ledger.sql_backend import SqlBackend
from noisemarket.ledger.store import BACKENDS, open_ledger

pytestmark = pytest.mark.slow


class TestSQLite(SqlConformance):
    @pytest.fixture
    def place(self, sqlite_place: str) -> str:
        return sqlite_place


class TestPostgreSQL(SqlConformance):
    @pytest.fixture
    def place(self, postgres_place: str) -> str:
        return postgres_place


@pytest.fixture
def lines_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a new ledger of lines, with the package that brings them installed."""
    info = tmp_path / "lines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: lines\nVersion: 1.0\n")
    points = "[noisemarket.ledgers]\nlines = tests.ledger.lines_backend:LinesBackend\n"
    points += "broken = tests.ledger.lines_backend:Path\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.delitem(vars(BACKENDS), "_installed", raising=False)
    yield f"lines://{tmp_path}/ledger.lines"
    vars(BACKENDS).pop("_installed", None)


class TestAnotherPackages(LedgerConformance):
    @pytest.fixture
    def place(self, lines_place: str) -> str:
        return lines_place


def test_a_scheme_is_known_once_its_package_is_installed(lines_place: str) -> None:
    scenario = load_scenario(settings={"ledger": lines_place})
    assert scenario.market.ledger == lines_place
    with open_ledger(lines_place) as ledger:
        assert ledger.head().count == 0
    with pytest.raises(BadInput, match=r"ledger = broken: cannot be loaded .*LedgerBackend"):
        open_ledger("broken://x")


def test_a_backend_will_do_if_it_holds_the_noted_head(tmp_path: Path) -> None:
    note = tmp_path / "head.json"
    backend = SqlBackend(tmp_path / "ledger.sqlite", create=True)
    with open_ledger(backend, curator=key("curator"), note=note) as ledger:
        ledger.append(Job.of().opening())
        with open_ledger(backend, note=note) as again:
            assert again.head() == ledger.head()
    other = closing(SqlBackend(tmp_path / "other.sqlite", create=True))
    with other as empty, pytest.raises(LedgerLost, match="lacks entry 2, which the curator"):
        open_ledger(empty, curator=key("curator"), note=note)


def test_a_scheme_that_nobody_brings() -> None:
    with pytest.raises(
        BadInput, match=r"begins with one of: sqlite://, postgresql://, postgres://"
    ):
        open_ledger("lines:///x")
    with pytest.raises(BadInput, match=r"market\.ledger"):
        load_scenario(settings={"ledger": "lines:///x"})
