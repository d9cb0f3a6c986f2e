"""The ledger on both databases."""

from pathlib import Path

import pytest
from tests.ledger.common import Job, key
from tests.ledger.sql_conformance import SqlConformance

from noisemarket import load_scenario
from noisemarket.errors import BadInput, LedgerLost
from noisemarket.ledger.store import open_ledger

pytestmark = pytest.mark.slow


class TestSQLite(SqlConformance):
    @pytest.fixture
    def place(self, sqlite_place: str) -> str:
        return sqlite_place


class TestPostgreSQL(SqlConformance):
    @pytest.fixture
    def place(self, postgres_place: str) -> str:
        return postgres_place


def test_an_existing_ledger_must_hold_the_noted_head(tmp_path: Path) -> None:
    note, other = tmp_path / "head.json", tmp_path / "other.sqlite"
    with open_ledger(tmp_path, curator=key("curator"), note=note) as ledger:
        ledger.append(Job.of().opening())
        with open_ledger(tmp_path, note=note) as again:
            assert again.head() == ledger.head()
    open_ledger(other).close()
    with pytest.raises(LedgerLost, match="lacks entry 2, which the curator"):
        open_ledger(other, curator=key("curator"), note=note)


def test_a_url_of_an_unknown_database() -> None:
    with pytest.raises(BadInput, match=r"begins with postgresql://"):
        open_ledger("lines:///x")
    with pytest.raises(BadInput, match=r"market\.ledger"):
        load_scenario(settings={"ledger": "lines:///x"})
