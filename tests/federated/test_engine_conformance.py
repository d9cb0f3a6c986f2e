"""The engines of one machine against the suite: the same bits however many workers, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noisemarket.testing.engine_suite import (
    EMBEDDED,
    PROTECTIONS,
    EngineConformance,
    Open,
)
from noisemarket.training.serial_engine import SerialEngine

LINEAR = [("linear", protection) for protection in PROTECTIONS]
FEW_WITH_TORCH = [*LINEAR, ("cnn", "sharded")]


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    EMBEDDED.close()


class TestOneWorker(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: EMBEDDED.open(order, 1)

    @pytest.mark.parametrize(("model", "protection"), LINEAR)
    def test_the_same_bits_whatever_the_engine(
        self, open_engine: Open, model: str, protection: str
    ) -> None:
        """A worker that loads torch is one of two, below: the seconds are spent once."""
        super().test_the_same_bits_whatever_the_engine(open_engine, model, protection)


class TestTwoWorkers(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: EMBEDDED.open(order, 2)

    @pytest.mark.parametrize(("model", "protection"), FEW_WITH_TORCH)
    def test_the_same_bits_whatever_the_engine(
        self, open_engine: Open, model: str, protection: str
    ) -> None:
        """How owners are spread over workers shows with any model: one case loads torch."""
        super().test_the_same_bits_whatever_the_engine(open_engine, model, protection)


class TestSerial(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: SerialEngine(order.job)
