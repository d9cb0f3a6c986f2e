"""Real SuperNodes, with TLS and authentication, in what the suite for all engines asks of owners.

Two houses of two owners each, so that a round is two messages. Processes are copied from one that
has imported everything: the suite's tests of secret noise hold that no two of them share any.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w
from tests.conformance.engine_suite import EngineConformance, Open
from tests.flower.relay import RelayGrid, relay_variables, relayed
from tests.flower.training import deal

from noisemarket.federated.engine import Engine
from noisemarket.flower.deploy.deployment import Deployment, NodeSetup
from noisemarket.flower.deploy.guard import marked_processes
from noisemarket.flower.deploy.warm_apps import OWNER, TORCH
from noisemarket.flower.flower_engine import FlowerEngine
from noisemarket.flower.line import Bounds, Line
from noisemarket.market.orders import Order

NAMES = ["anna", "bob", "carla", "dora"]
HOUSES = {"north": NAMES[:2], "south": NAMES[2:]}

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(scope="module")
def grid(root: Path) -> Iterator[RelayGrid]:
    """A grid over two SuperNodes, each of two owners whose folders are in ``root``."""
    with (
        tempfile.TemporaryDirectory(prefix="nm-") as place,
        relay_variables(Path(place)) as (socket, key),
    ):
        nodes = []
        for house, names in HOUSES.items():
            file = Path(place) / f"{house}.toml"
            file.touch(mode=0o600)
            file.write_text(tomli_w.dumps({n: {"owner-folder": str(root / n)} for n in names}))
            nodes.append(NodeSetup(house, {"house": str(file)}))
        with Deployment(nodes, poll=0.5, preload=[*OWNER, *TORCH]) as deployment:
            assert deployment.warm
            token = deployment.processes.token
            with relayed(deployment, socket, key) as relay:
                yield relay
            logs = "".join(deployment.log(house).read_text() for house in HOUSES)
    assert "it starts from scratch" not in logs
    assert marked_processes(token) == []


class TestDeployment(EngineConformance):
    @pytest.fixture
    def open_engine(self, grid: RelayGrid, root: Path) -> Open:
        """Every engine has a line of its own; the owners' folders last as long as a test."""
        for folder in root.iterdir():
            shutil.rmtree(folder)

        def make(order: Order) -> Engine:
            deal(order, NAMES, order.job.model.settings(), root)
            line = Line(grid, NAMES, Bounds(60.0), HOUSES)
            assert line.meet(0.0) == [0, 1, 2, 3]
            return FlowerEngine(line, order.job, order.fingerprint)

        return make

    @pytest.mark.parametrize(("model", "protection"), [("cnn", "sharded")])
    def test_the_same_bits_whatever_the_engine(
        self, open_engine: Open, model: str, protection: str
    ) -> None:
        """With torch, which the copied processes have loaded; the other tests are linear."""
        super().test_the_same_bits_whatever_the_engine(open_engine, model, protection)

    # These are about what the curator does with uploads, whoever made them. They hold over the
    # other grids, and held over this one, where they take minutes.
    test_what_it_gives_is_the_callers_to_keep = None
    test_a_job_with_troubles_comes_to_the_same_at_once_or_in_two_goes = None
    test_an_update_that_diverges_is_refused_as_not_finite = None
    test_every_release_is_charged_before_it_is_made = None
