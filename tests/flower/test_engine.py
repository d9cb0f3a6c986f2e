"""The engine over a grid, where it is like no other: owners away, strangers, rubbish."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.conftest import JOB, NAMES, Node, ProcessGrid, small
from tests.flower.overheard import BareUpdates, Overheard
from tests.flower.training import engine_over, train_over
from tests.support.agreed import charges

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.models.cnn import CNN, cnn_of
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.flower.owner_app import owner_app
from noisemarket.flower.records import content
from noisemarket.market.orders import Order
from noisemarket.owner.folder import OwnerFolder
from noisemarket.owner.owner_messages import Update

pytestmark = pytest.mark.process

Owners = dict[str, dict[str, Any]]


def grid_of(owners: Owners, *, named: bool = True) -> ProcessGrid:
    return ProcessGrid(
        {
            number: Node(owner_app(small), config, name if named else "")
            for number, (name, config) in enumerate(owners.items(), start=100)
        }
    )


def rubbish(content: RecordDict) -> ClientApp:
    app = ClientApp()

    @app.train()
    def send(message: Message, context: Context) -> Message:
        return Message(content, reply_to=message)

    return app


@pytest.mark.parametrize("named", [True, False])
def test_a_job_is_charged_by_each_owner_and_takes_two_messages_a_round(
    order: Order, owners: Owners, tmp_path: Path, named: bool
) -> None:
    said: list[str] = []
    grid = grid_of(owners, named=named)
    done = train_over(grid, order, NAMES, tmp_path / "run", show=said.append, insecure=not named)
    assert done.complete
    with np.load(tmp_path / "run" / "model.npz") as model:
        size = 4 * len(model["weights"])
    for name in NAMES:
        made_of = charges(OwnerFolder(name, Path(owners[name]["owner-folder"])), JOB)
        assert [charge.round for charge in made_of] == [1, 2]
    kinds = [one.kind for one in done.traffic]
    assert kinds == (["train"] * 2 if named else ["query.hello", "train", "train"])
    assert all(3 * size < one.bytes_in < 3 * size + 2000 for one in done.traffic[-2:])
    assert said[0] == "3 of 3 owners are here."


def test_no_private_number_or_datum_is_in_any_message(
    order: Order, owners: Owners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, bare = grid_of(owners), BareUpdates.of("paper", monkeypatch)
    train_over(grid, order, NAMES, tmp_path / "run")
    assert len(grid.sent) == len(grid.heard) == 6
    for message in grid.sent:
        assert set(message.content) == {"arrays", "config"}
        config = message.content["config"]
        assert set(config) == {"message", "protocol"}
        told = {"job", "round_number", "sigma", "weights", "receipt"}
        assert set(json.loads(str(config["message"]))) == told
    for message in grid.heard:
        assert {name: set(part) for name, part in message.content.items()} == {
            "arrays": {"weights"},
            "config": {"message"},
        }
    said = Overheard([*grid.sent, *grid.heard])
    assert len(bare.updates) == 6
    assert sum(sigma > 0 for sigma in bare.sigmas) == 4
    bare.check(grid.sent, grid.heard)
    for config in owners.values():
        with np.load(Path(config["owner-folder"]) / "records.npz") as records:
            assert not any(said.says(image.tobytes()) for image in records["images"])
            assert not said.says(records["labels"].tobytes())
            assert len(records["labels"]) not in said.numbers


def test_rubbish_absence_and_refusal_are_none_and_the_job_goes_on(
    order: Order, owners: Owners, tmp_path: Path
) -> None:
    grid = grid_of(owners)
    broken = Array("float32", (45,), "numpy.ndarray", b"\x93NUMPY rubbish")
    grid.nodes[100] = Node(
        rubbish(RecordDict({"arrays": ArrayRecord({"weights": broken})})), {}, "anna"
    )
    with engine_over(grid, order.job, NAMES, JOB, timeout=1) as engine:
        assert engine.line.present() == [0, 1, 2]
        first = engine.first_weights()
        made = engine.train(1, first, [0, 1, 2])
        assert made[0] is None
        assert made[1] is not None
        grid.nodes[100].app = rubbish(RecordDict({"config": ConfigRecord({"x": 1})}))
        del grid.nodes[101]  # died: the engine waits for it in vain
        made = engine.train(2, first, [0, 1, 2])
        assert (made[0], made[1]) == (None, None)
        assert made[2] is not None
        assert engine.line.present() == [0, 2]
    grid.nodes[100].app = rubbish(content(Update(np.ones(3, np.float32)).plain()))
    done = train_over(grid, order, NAMES, tmp_path / "run", timeout=1, wait=0.1)
    assert done.complete
    assert [one.delivered for one in done.results] == [(2,), (2,)]
    assert [one.refused for one in done.results] == [((0, "wrong shape"),)] * 2
    assert [one.releases for one in done.statements] == [2, 0, 2]  # who is away is not charged


def test_another_sigma_than_the_owners_is_refused(order: Order, owners: Owners) -> None:
    order.job.sigma[0] = 0.01  # the curator would like less noise than was contracted
    with engine_over(grid_of(owners), order.job, NAMES, JOB, timeout=1) as engine:
        engine.line.present()
        made = engine.train(1, engine.first_weights(), [0, 1])
    assert made[0] is None
    assert made[1] is not None


def test_a_node_that_comes_back_under_another_number_is_met_again(
    order: Order, owners: Owners
) -> None:
    grid = grid_of(owners, named=False)
    with engine_over(grid, order.job, NAMES, JOB, timeout=1, insecure=True) as engine:
        assert engine.line.present() == [0, 1, 2]
        back = grid.nodes.pop(101)
        assert engine.line.present() == [0, 2]
        grid.nodes[555] = back
        assert engine.line.present() == [0, 1, 2]
        assert engine.train(1, engine.first_weights(), [1])[1] is not None


def test_nobody_takes_the_place_of_an_owner(order: Order, owners: Owners) -> None:
    """Neither a node registered under another name, nor a second one that says it is Bob; and
    where nodes are known by their keys, none that has no name."""
    grid = grid_of(owners, named=False)
    with engine_over(grid, order.job, NAMES, JOB, timeout=1) as engine:
        assert engine.line.present() == []
        assert grid.sent == []
    with engine_over(grid, order.job, NAMES, JOB, timeout=1, insecure=True) as engine:
        engine.line.present()
        grid.nodes[600] = Node(owner_app(small), owners["bob"])
        grid.nodes[601] = Node(owner_app(small), owners["bob"], "mallory")
        engine.line.present()
        assert engine.line.known["bob"] == 101
    fresh = ProcessGrid({601: grid.nodes[601]})
    with engine_over(fresh, order.job, NAMES, JOB, timeout=1) as engine:
        assert engine.line.present() == []


@pytest.mark.parametrize("downsampling", ["pool", "stride"])
def test_terms_build_the_very_model_of_the_job(order: Order, downsampling: str) -> None:
    """Same number of parameters is not enough: what the model computes must be the same."""
    made = partial(CNN, (2, 3), 8, 4, 16, downsampling=downsampling)
    settings = TorchMaker(made).settings()
    pictures = torch.rand(5, 1, 16, 16)
    ours, theirs = (
        TorchMaker(made).module(TorchMaker(made)(3).first_weights(), 3)(pictures)
        for made in (made, partial(cnn_of, json.loads(json.dumps(settings))))
    )
    assert torch.equal(ours, theirs)
    with pytest.raises(BadInput, match="not the scenario's CNN"):
        order.job.model.settings()


def test_without_owners_the_job_stops_and_can_go_on(
    order: Order, owners: Owners, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(NoisemarketError, match="No owner is here"):
        train_over(ProcessGrid({}), order, NAMES, run, wait=0.1)
    done = train_over(grid_of(owners), order, NAMES, run)
    assert done.complete
    assert len(done.results) == 2
