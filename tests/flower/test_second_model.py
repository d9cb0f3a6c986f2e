"""An ordinary Flower app, the one in examples/flower-own-model: a perceptron on two moons, the mod
on its owners' side and Flower's own strategy on the curator's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict
from scipy.stats import chi2
from tests.flower.conftest import Node, ProcessGrid
from torch.nn.utils import parameters_to_vector

from noisemarket.flower.host_files import CURATOR
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.owner.folder import OwnerFolder

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower-own-model"
ROUNDS, CLIP = 8, 1.0


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the example's script does, with the example's app at hand."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield run_path(str(EXAMPLE / "local.py"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "moons_app"]:
        del sys.modules[name]


@pytest.mark.parametrize("sigma", [0.02, 5.0])
def test_it_learns_under_its_noise_and_every_release_is_charged(
    local: dict[str, Any], tmp_path: Path, sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = (import_module(f"moons_app.{name}_app") for name in ("client", "server"))
    deals = {
        f"owner-{number}": {"saving": 0.1, "sigma": sigma, "payment": 1_000_000 * number}
        for number in range(1, 5)
    }
    configs = local["agree"](tmp_path, deals, ROUNDS)
    grid = ProcessGrid(
        {number: Node(client.app, dict(one)) for number, one in enumerate(configs.values(), 1)}
    )
    monkeypatch.setenv(CURATOR, str(tmp_path))
    config = {"folder": ".", "job": local["JOB"], "rounds": ROUNDS}
    server.app(grid, Context(1, 1, {}, RecordDict(), config))

    task = import_module("moons_app.task")
    model = task.perceptron()
    model.load_state_dict(torch.load(tmp_path / "curator" / "model.pt", weights_only=True))
    if sigma < 1:
        assert task.accuracy(model) >= 0.9
    else:  # the noise decides: each weight has moved by that of 8 rounds, averaged over 4 owners
        first, last = (
            parameters_to_vector(m.parameters()).detach() for m in (task.perceptron(), model)
        )
        moved = float(((last - first) ** 2).sum()) / (ROUNDS * sigma**2 / len(deals))
        low, high = chi2.ppf([1e-9, 1 - 1e-9], last.numel())
        assert low < moved < 1.2 * high  # clipped training adds a little
    with open_ledger(tmp_path / "ledger.sqlite", create=False) as ledger:
        verify(ledger)
        for one, name in zip(contracts(ledger), deals, strict=True):
            assert (one.contract.owner, one.state) == (name, "signed")
            owner = OwnerFolder(name, tmp_path / "owners" / name)
            held = owner.wallet().account().open[local["JOB"]]
            assert held.releases == ROUNDS
            assert held.spent == pytest.approx(one.contract.rho_cap)
            assert held.spent == pytest.approx(ROUNDS * 2 * CLIP**2 / sigma**2, rel=1e-3)
            assert "whole data" in held.terms.protects
    for reply in grid.heard:  # neither the loss nor the number of records
        assert dict(reply.content["metrics"]) == {"num-examples": 1}


def test_an_owner_declines_a_round_that_its_contract_does_not_have(
    local: dict[str, Any], tmp_path: Path
) -> None:
    client, server = (import_module(f"moons_app.{name}_app") for name in ("client", "server"))
    configs = local["agree"](tmp_path, local["deals"](2), 1)
    grid = ProcessGrid(
        {number: Node(client.app, dict(one)) for number, one in enumerate(configs.values(), 1)}
    )
    server.train(grid, tmp_path, local["JOB"], 2)
    last = [(one.has_error() and one.error.reason) or "" for one in grid.heard]
    assert last == ["", "", *["the contract has no such round"] * 2]
    for config in configs.values():
        assert OwnerFolder.of(config).wallet().account().open[local["JOB"]].releases == 1
