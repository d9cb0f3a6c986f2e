"""The engines of one machine against the suite: the same bits however many workers, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noisemarket.testing.engine_suite import (
    EMBEDDED,
    PROTECTIONS,
    AcrossProcesses,
    EngineConformance,
    Open,
)
from noisemarket.training.serial_engine import SerialEngine


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    EMBEDDED.close()


class TestOneWorker(AcrossProcesses):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: EMBEDDED.open(order, 1)


class TestTwoWorkers(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: EMBEDDED.open(order, 2)

    @pytest.mark.parametrize("protection", PROTECTIONS)
    def test_the_same_bits_whatever_the_engine(self, open_engine: Open, protection: str) -> None:
        """How owners are spread over workers shows with any model: these need not load torch."""
        super().test_the_same_bits_whatever_the_engine(open_engine, "linear", protection)


class TestSerial(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: SerialEngine(order.job)
