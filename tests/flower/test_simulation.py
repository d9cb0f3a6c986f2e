"""Flower's own simulation runtime against the suite for all engines."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
from flwr.serverapp import Grid
from tests.commands import PATIENCE
from tests.conformance.engine_suite import AcrossProcesses, Open
from tests.flower.training import deal, engine_over

from noisemarket.federated.engine import Engine
from noisemarket.flower.simulation import simulate
from noisemarket.market.orders import Order

NAMES = ["anna", "bob", "carla", "dora"]
SIMULATED = {"insecure": True, "simulated": True}

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # Ray's files
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(scope="module")
def grid(root: Path) -> Iterator[Grid]:
    """A grid over simulated nodes, each an owner whose folder is in ``root``."""
    configs = [{"owner": name, "owner-folder": str(root / name)} for name in NAMES]
    grids, over = SimpleQueue[Grid](), Event()

    def lend(grid: Grid) -> None:
        grids.put(grid)
        over.wait()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(simulate, configs, lend)
        try:
            yield grids.get(timeout=PATIENCE)
        finally:
            over.set()
        running.result()
    gc.collect()  # what Ray has left open, while its warnings are ignored


class TestSimulation(AcrossProcesses):
    @pytest.fixture
    def open_engine(self, grid: Grid, root: Path) -> Open:
        """Every engine has a line of its own; the owners' folders last as long as a test."""
        for folder in root.iterdir():
            shutil.rmtree(folder)

        def make(order: Order) -> Engine:
            deal(order, NAMES, order.job.model.settings(), root)
            engine = engine_over(grid, order.job, NAMES, order.fingerprint, **SIMULATED)
            assert engine.line.meet(PATIENCE) == [0, 1, 2, 3]
            return engine

        return make
