"""The embedded engine against the suite for all engines: the same bits however many workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.federated.conformance import EMBEDDED, EngineConformance, Open


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    EMBEDDED.close()


@pytest.mark.parametrize("workers", [1, 2])
class TestEmbedded(EngineConformance):
    @pytest.fixture
    def open_engine(self, workers: int) -> Open:
        return lambda order: EMBEDDED.open(order, workers)
