"""The engine over Flower's grid against the suite for all engines: the embedded engine's bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.engine_suite import EngineConformance, Open
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.training import deal, engine_over

from noisemarket.federated.engine import Engine
from noisemarket.flower.owner_app import owner_app
from noisemarket.market.orders import Order

pytestmark = pytest.mark.process

NAMES = ["anna", "bob", "carla", "dora"]


class TestFlower(EngineConformance):
    @pytest.fixture
    def open_engine(self, tmp_path: Path) -> Open:
        """Every engine has a grid and nodes of its own; the owners' folders last."""

        def make(order: Order) -> Engine:
            configs = deal(order, NAMES, order.job.model.settings(), tmp_path / "owners")
            nodes = {
                number: Node(owner_app(), config, name)
                for number, (name, config) in enumerate(configs.items(), start=100)
            }
            engine = engine_over(ProcessGrid(nodes), order.job, NAMES, order.fingerprint)
            assert engine.line.present() == [0, 1, 2, 3]
            return engine

        return make
