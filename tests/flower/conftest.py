"""A tiny job, its owners' folders, and a grid inside this process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

if os.environ.get("CI"):
    import flwr  # noqa: F401 - in CI its absence is a failure, not a reason to skip
else:
    pytest.importorskip("flwr", reason="needs the extra flower: pip install 'noisemarket[flower]'")

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from tests.flower.training import deal
from torch import nn

from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Job
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Paper
from noisemarket.federated.rounds import TrainingPlan
from noisemarket.market.orders import Order
from noisemarket.privacy.accountant import PrivacyBudget
from noisemarket.privacy.zcdp import Neighbours

# Messages can be made in Flower's own processes only, which know in which run they are. The one
# private name of Flower that is used anywhere, to make messages in a test.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

NAMES = ["anna", "bob", "carla"]
JOB = "job-1"


def small(settings: Any = None) -> nn.Module:
    """A second model, not the paper's: a perceptron with a hidden layer."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def make_order(noise: str = "simulated", cap: float = np.inf, sigma: float = 0.1) -> Order:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 120)
    images = (rng.normal(size=(120, 4)) + labels[:, None]).astype(np.float32)
    data = Dataset.of(images[:90], labels[:90], images[90:], labels[90:])
    parts = Partition(tuple(np.split(np.arange(90), [20, 50])))
    job = Job(
        data, parts, TorchMaker(small), Paper(8, 0.1, 1), np.array([sigma, 0.2, 0.0]), 11, noise
    )
    budgets = tuple(
        PrivacyBudget(owner, "paper", float(job.sigma[owner]), np.inf, Neighbours.REPLACE_ONE,
                      rho_cap=cap, simulated=noise == "simulated")
        for owner in range(3)
    )  # fmt: skip
    return Order(job, TrainingPlan(2, np.ones(3)), budgets, JOB)


@dataclass
class Node:
    """A SuperNode as its ClientApp sees it: a config, and a state that lasts while it runs."""

    app: ClientApp
    config: dict[str, Any]
    name: str = ""
    state: RecordDict = field(default_factory=RecordDict)

    def answer(self, message: Message, number: int) -> Message:
        context = Context(1, number, self.config, self.state, {})
        return self.app(message, context)


class OneRun(Grid):
    """What every grid of these tests has: one run, and nobody who makes messages in it."""

    def set_run(self, run: Any) -> None:
        pass

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=1)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError


class ProcessGrid(OneRun):
    """Flower's grid without the network: messages go to real ClientApps in this process."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes, self.sent, self.heard = nodes, list[Message](), list[Message]()
        self.replies: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=n, name=node.name) for n, node in self.nodes.items()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            names.append(name)
            number = message.metadata.dst_node_id
            if number not in self.nodes:
                continue  # nobody there: no answer ever
            try:
                reply = self.nodes[number].answer(message, number)
            except Exception as problem:  # as Flower's own runner does
                reply = Message(Error(1, str(problem)), reply_to=message)
            self.replies[name] = reply
            self.heard.append(reply)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(name) for name in message_ids if name in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


@pytest.fixture
def order() -> Order:
    return make_order()


@pytest.fixture
def owners(order: Order, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Each owner's folder, written, and its node config."""
    return deal(order, NAMES, {}, tmp_path / "owners")


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small market in one process: what every engine must come to."""
    from tests.flower.market_common import make_scenario

    from noisemarket.market.job import run_market

    folder = tmp_path_factory.mktemp("embedded") / "run"
    run_market(make_scenario(folder), folder, workers=1).finish()
    return folder
