from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.postgres import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def sqlite_place(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.sqlite")


@pytest.fixture
def postgres_place(server: Server) -> str:
    return server.new_place()
