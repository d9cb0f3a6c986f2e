"""An ordinary Flower app: a perceptron on two moons, FedAvg, and the mod of a contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.flower.conftest import Node, ProcessGrid
from torch import nn

from noisemarket.flower.mod import CLIPPED, contract_mod
from noisemarket.flower.owner import OwnerFolder, Terms
from noisemarket.privacy.journal import read_journal

JOB, ROUNDS, CLIP = "moons", 25, 1.0


def moons(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    angle = rng.uniform(0, np.pi, count) + np.pi * labels
    points = np.stack([np.cos(angle) + labels, np.sin(angle) + 0.3 * labels], axis=1)
    points += rng.normal(0, 0.1, points.shape)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(labels)


def perceptron() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


app = ClientApp()


@app.train(mods=[contract_mod()])
def train(message: Message, context: Context) -> Message:
    """What a Flower user writes: load the model, train it, send it back."""
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    model = perceptron()
    model.load_state_dict(arrays.to_torch_state_dict())
    points, labels = moons(200, int(context.node_config["data"]))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(10):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(labels), "loss": float(loss.detach())})
    reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(reply, reply_to=message)


def accuracy(arrays: ArrayRecord) -> float:
    model = perceptron()
    model.load_state_dict(arrays.to_torch_state_dict())
    points, labels = moons(500, 99)
    return float((model(points).argmax(1) == labels).float().mean())


@pytest.mark.parametrize(("sigma", "least"), [(0.02, 0.9), (5.0, 0.0)])
def test_it_learns_under_its_noise_and_the_noise_counts(
    tmp_path: Path, sigma: float, least: float
) -> None:
    nodes = {}
    for number in range(1, 5):
        name = f"owner-{number}"
        terms = Terms(JOB, name, number, sigma, CLIPPED, {"clip": CLIP}, rho_cap=1e9)
        OwnerFolder(name, tmp_path / name).agree(terms)
        config = {"owner": name, "owner-folder": str(tmp_path / name), "data": number}
        nodes[number] = Node(app, config)
    first = ArrayRecord(perceptron().state_dict())
    result = FedAvg(fraction_evaluate=0.0).start(
        ProcessGrid(nodes), first, num_rounds=ROUNDS, train_config=ConfigRecord({"job": JOB})
    )
    reached = accuracy(result.arrays)
    assert reached >= least
    assert (reached >= 0.9) == (least > 0)  # with too much noise nothing is learned
    for number in range(1, 5):
        owner = OwnerFolder(f"owner-{number}", tmp_path / f"owner-{number}")
        statement = read_journal(owner.journal(JOB)).statement(owner.name)
        assert statement.releases == ROUNDS
        assert statement.rho_total == pytest.approx(ROUNDS * 2 * CLIP**2 / sigma**2, rel=1e-3)
        assert "whole data" in statement.protects
    assert "loss" not in str(result.train_metrics_clientapp)
