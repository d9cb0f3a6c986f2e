"""The engines of one machine against the suite: the same bits however many workers, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noisemarket.testing.engine_suite import EMBEDDED, AcrossProcesses, EngineConformance, Open
from noisemarket.training.serial_engine import SerialEngine


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    EMBEDDED.close()


@pytest.mark.parametrize("workers", [1, 2])
class TestEmbedded(AcrossProcesses):
    @pytest.fixture
    def open_engine(self, workers: int) -> Open:
        return lambda order: EMBEDDED.open(order, workers)


class TestSerial(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: SerialEngine(order.job)
