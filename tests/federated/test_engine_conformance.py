"""The engines of one machine against the suite: the same bits however many workers, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.engine_suite import (
    EngineConformance,
    Open,
)
from tests.support.cheats import FaultyEngine

from noisemarket.federated.engine import Engine
from noisemarket.market.orders import Order
from noisemarket.market.training import LocalEngine, SerialEngine

pytestmark = pytest.mark.process

ONCE_EACH = [
    ("cnn", "sharded"),
    ("linear", "per_record"),
    ("linear", "paper"),
    ("linear", "dp_sgd"),
]
"""Every model and every protection once: how they go together is not for workers to get wrong."""

FREE: dict[tuple[str, int], list[Engine]] = {}


class Lent(FaultyEngine):
    """An engine without faults, whose end is not yet its end: to start its workers takes long."""

    def __init__(self, order: Order, workers: int) -> None:
        self._free = FREE.setdefault((order.fingerprint, workers), [])
        engine = self._free.pop() if self._free else LocalEngine(order.job, workers)
        super().__init__(engine, [], order.job)

    def close(self) -> None:
        if self._engine not in self._free:
            self._free.append(self._engine)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    for engines in FREE.values():
        while engines:
            engines.pop().close()


class TestTwoWorkers(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: Lent(order, 2)

    @pytest.mark.parametrize(("model", "protection"), ONCE_EACH)
    def test_the_same_bits_whatever_the_engine(
        self, open_engine: Open, model: str, protection: str
    ) -> None:
        super().test_the_same_bits_whatever_the_engine(open_engine, model, protection)


class TestSerial(EngineConformance):
    @pytest.fixture
    def open_engine(self) -> Open:
        return lambda order: SerialEngine(order.job)


def test_one_worker_gives_the_same_bits() -> None:
    """All else it does as two do, and its processes take long to start."""
    suite = EngineConformance()
    suite.test_the_same_bits_whatever_the_engine(lambda order: Lent(order, 1), "linear", "sharded")
