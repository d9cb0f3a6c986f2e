"""The ledger on both databases, and what is the file's or the server's own."""

import pytest
from tests.ledger.conformance import LedgerConformance


class TestSQLite(LedgerConformance):
    @pytest.fixture
    def place(self, sqlite_place: str) -> str:
        return sqlite_place


class TestPostgreSQL(LedgerConformance):
    @pytest.fixture
    def place(self, postgres_place: str) -> str:
        return postgres_place
