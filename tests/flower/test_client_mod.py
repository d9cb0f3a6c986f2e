"""The client mod around an app of one's own: clip, noise, charge, and nothing else goes out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.flower.conftest import JOB, Node, ProcessGrid
from tests.ledger.common import contract
from tests.support.agreed import agree, charges

from noisemarket.flower.client_mod import contract_mod
from noisemarket.flower.owner_app import DECLINED, FAILED
from noisemarket.owner.folder import OwnerFolder

pytestmark = pytest.mark.process

SHAPES = {"first": (50, 60), "bias": (60,), "second": (60, 3)}
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())
CLIP = 2.0


def model(value: float = 0.0) -> ArrayRecord:
    arrays = {name: Array(np.full(shape, value, np.float32)) for name, shape in SHAPES.items()}
    return ArrayRecord({**arrays, "steps": Array(np.array([7]))})


def own_app(step: float) -> ClientApp:
    """Somebody's app, with a model and metrics of its own: every weight moves by ``step``."""
    app = ClientApp()

    @app.train(mods=[contract_mod()])
    def train(message: Message, context: Context) -> Message:
        if step < 0:
            raise RuntimeError("secret")
        start = {name: array.numpy() for name, array in message.content["arrays"].items()}
        moved = {
            name: Array(np.array([8]) if name == "steps" else array + np.float32(step))
            for name, array in start.items()
        }
        told = MetricRecord({"loss": 3.25, "num-examples": 77})
        extra = ConfigRecord({"first-record": "secret"})
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": told, "extra": extra})
        return Message(content, reply_to=message)

    return app


def folder(path: Path, sigma: float = 0.5, **changes: Any) -> dict[str, Any]:
    return agreed("anna", 0, path, sigma=sigma, **changes)


def agreed(name: str, index: int, path: Path, **changes: Any) -> dict[str, Any]:
    """An owner with a contract; gives the config of its node."""
    terms = {"protection": "sharded", "clip": CLIP, "shards": 1, "settings": {}, "rounds": 100}
    terms |= {"simulated": True, "rho_cap": math.inf} | changes
    plan = {"index": index, "seed": 3, "model": {"parameters": SIZE}}
    agree(OwnerFolder(name, path), contract(name, JOB, **terms), plan)
    return {"owner": name, "owner-folder": str(path)}


def ask(config: dict[str, Any], step: float, **told: Any) -> Message:
    record = ConfigRecord({"job": JOB, "server-round": 1} | told)
    message = Message(RecordDict({"arrays": model(1.0), "config": record}), 1, "train")
    return own_app(step)(message, Context(1, 1, config, RecordDict(), {}))


def update(reply: Message) -> np.ndarray:
    record = reply.content["arrays"]
    return np.concatenate([(record[name].numpy() - 1.0).reshape(-1) for name in SHAPES])


def test_without_noise_the_whole_update_is_cut_to_the_clip(tmp_path: Path) -> None:
    config = folder(tmp_path, sigma=0.0)
    large = update(ask(config, 5.0))
    assert np.linalg.norm(large) == pytest.approx(CLIP, rel=1e-4)
    assert np.ptp(large) < 1e-6  # its direction is kept
    small = update(ask(config, 0.001, **{"server-round": 2}))
    assert small == pytest.approx(0.001, rel=1e-2)


def test_the_noise_is_the_contracted_one_over_all_arrays(tmp_path: Path) -> None:
    noise = update(ask(folder(tmp_path), 0.0))
    assert noise.std() == pytest.approx(0.5, rel=5 / np.sqrt(2 * SIZE))
    assert abs(noise.mean()) < 5 * 0.5 / np.sqrt(SIZE)
    other = update(ask(folder(tmp_path), 0.0, **{"server-round": 2}))
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1


def test_nothing_but_the_protected_model_goes_out(tmp_path: Path) -> None:
    reply = ask(folder(tmp_path), 5.0)
    assert set(reply.content) == {"arrays", "metrics"}
    assert dict(reply.content["metrics"]) == {"num-examples": 1}
    assert reply.content["arrays"]["steps"].numpy() == [7]  # no float: as the curator sent it
    (charge,) = charges(OwnerFolder("anna", tmp_path), JOB)
    assert charge.rho == pytest.approx((2 * CLIP / 0.5) ** 2 / 2, rel=1e-4)


def test_no_noise_serves_for_two_updates_whatever_app_asks(tmp_path: Path) -> None:
    """An app that is changed between two runs must not strip the noise, nor go uncounted."""
    config = folder(tmp_path, sigma=50.0, simulated=False)

    def made(step: float, number: int = 1) -> np.ndarray:
        return update(ask(config, step, **{"server-round": number}))

    first = made(0.0)
    assert np.array_equal(made(0.01), first)  # what went out before, not one with its noise
    made(0.0, 2)
    again = made(0.01)
    assert np.std(again - first) == pytest.approx(50.0 * np.sqrt(2.0), rel=0.1)
    made_of = charges(OwnerFolder("anna", tmp_path), JOB)
    assert [charge.round for charge in made_of] == [1, 2, 1]


def test_rounds_beyond_the_contract_are_refused(tmp_path: Path) -> None:
    config = folder(tmp_path, rounds=2)
    for told, fine in (({"server-round": 2}, True), ({"server-round": 3}, False)):
        assert ask(config, 0.0, **told).has_error() != fine


@pytest.mark.parametrize("told", [{"sigma": 0.4}, {"job": "other"}, {"server-round": 0}])
def test_another_contract_is_refused_before_anything_is_trained(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    reply = ask(folder(tmp_path), -1.0, **told)  # training would raise
    assert reply.error.code == DECLINED
    assert charges(OwnerFolder("anna", tmp_path), JOB) == []


def test_training_that_fails_was_charged(tmp_path: Path) -> None:
    """An error may depend on the records: it tells of them as a release does."""
    config = folder(tmp_path, rho_cap=100.0)
    replies = [ask(config, -1.0, **{"server-round": number}) for number in (1, 2, 2, 3)]
    made_of = charges(OwnerFolder("anna", tmp_path), JOB)
    assert [charge.round for charge in made_of] == [1, 2, 2]
    assert [one.error.code for one in replies] == [FAILED] * 3 + [DECLINED]  # 3 * 32 of 100


def test_terms_of_another_protection_and_failures_give_nothing_away(tmp_path: Path) -> None:
    failed = ask(folder(tmp_path / "a"), -1.0)
    assert (failed.error.code, failed.error.reason) == (FAILED, "failed on the owner's side")
    wrong = ask(folder(tmp_path / "b", protection="paper", clip=None), 1.0)
    assert (wrong.error.code, wrong.error.reason) == (FAILED, "failed on the owner's side")


def test_flowers_own_strategy_trains_over_the_mod(tmp_path: Path) -> None:
    """An app with FedAvg: the global model moves by the mean of the clipped, noised updates."""
    nodes = {}
    for number, name in enumerate(("anna", "bob"), start=1):
        nodes[number] = Node(own_app(5.0), agreed(name, number, tmp_path / name, sigma=0.0))
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=2)
    result = strategy.start(
        ProcessGrid(nodes), model(1.0), num_rounds=2, train_config=ConfigRecord({"job": JOB})
    )
    moved = np.concatenate([result.arrays[name].numpy().reshape(-1) - 1.0 for name in SHAPES])
    assert np.linalg.norm(moved) == pytest.approx(2 * CLIP, rel=1e-3)
    for name in ("anna", "bob"):
        made_of = charges(OwnerFolder(name, tmp_path / name), JOB)
        assert [charge.round for charge in made_of] == [1, 2]
