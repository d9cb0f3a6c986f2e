"""Flower's own simulation runtime, real processes of Flower and Ray, against the suite for all
engines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.engine_suite import AcrossProcesses, Open
from tests.flower.relay import RelayGrid, relay_variables, relayed
from tests.flower.training import deal, engine_over

from noisemarket.federated.engine import Engine
from noisemarket.flower.deploy.deployment import NodeSetup, Simulation
from noisemarket.flower.deploy.guard import marked_processes
from noisemarket.market.orders import Order

NAMES = ["anna", "bob", "carla", "dora"]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(scope="module")
def grid(root: Path) -> Iterator[RelayGrid]:
    """A grid over simulated nodes, each an owner whose folder is in ``root``."""
    nodes = [NodeSetup(n, {"owner": n, "owner-folder": str(root / n)}) for n in NAMES]
    with (
        tempfile.TemporaryDirectory(prefix="nm-") as place,
        relay_variables(Path(place)) as (socket, key),
        Simulation(nodes, workers=1) as simulation,
    ):
        token = simulation.processes.token
        with relayed(simulation, socket, key) as relay:
            yield relay
    assert marked_processes(token) == []


class TestSimulation(AcrossProcesses):
    @pytest.fixture
    def open_engine(self, grid: RelayGrid, root: Path) -> Open:
        """Every engine has a line of its own; the owners' folders last as long as a test."""
        for folder in root.iterdir():
            shutil.rmtree(folder)

        def make(order: Order) -> Engine:
            deal(order, NAMES, order.job.model.settings(), root)
            engine = engine_over(grid, order.job, NAMES, order.fingerprint, insecure=True)
            assert engine.line.meet(0.0) == [0, 1, 2, 3]
            return engine

        return make
