from pathlib import Path

import pytest
from tests.ledger.postgres import Server


@pytest.fixture
def sqlite_place(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.sqlite")


@pytest.fixture
def postgres_place(server: Server) -> str:
    return server.new_place()
