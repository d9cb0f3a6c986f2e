"""An owner's ClientApp: the embedded engine's bits, the journal, and what it refuses."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from tests.flower.conftest import JOB, NAMES, make_order, small
from tests.flower.training import deal
from tests.ledger.common import changed, contract
from tests.support.agreed import agree
from tests.support.agreed import charges as charged
from torch import nn

from noisemarket.errors import BadInput
from noisemarket.flower.owner_app import DECLINED, FAILED, owner_app
from noisemarket.market.orders import Order
from noisemarket.market.training import LocalEngine
from noisemarket.owner.folder import Declined, OwnerFolder

pytestmark = pytest.mark.process

Config = dict[str, Any]


def ask(weights: np.ndarray, **change: Any) -> Message:
    told = {"job": JOB, "round_number": 1, "sigma": 0.1, "weights": "weights"} | change
    arrays = ArrayRecord({"weights": Array(weights)})
    config = ConfigRecord({"message": json.dumps(told)})
    return Message(RecordDict({"arrays": arrays, "config": config}), 1, "train")


def call(config: Config, message: Message, models: Any = small) -> Message:
    return owner_app(models)(message, Context(1, 1, config, RecordDict(), {}))


def start(order: Order) -> np.ndarray:
    return order.job.first_weights().astype(np.float32)


def charges(config: Config) -> int:
    return len(charged(OwnerFolder("anna", Path(config["owner-folder"])), JOB))


def test_an_owner_says_who_it_is(owners: dict[str, Config]) -> None:
    reply = call(owners["bob"], Message(RecordDict(), 1, "query.hello"))
    assert dict(reply.content["config"]) == {"owner": "bob"}


def test_uploads_are_the_embedded_engines_bit_by_bit(
    order: Order, owners: dict[str, Config]
) -> None:
    weights = start(order)
    with LocalEngine(order.job, 1) as engine:
        expected = {r: engine.train(r, weights.astype(np.float64), range(3)) for r in (1, 2)}
    for number in (1, 2):
        for index, name in enumerate(NAMES):
            sigma = float(order.job.sigma[index])
            reply = call(owners[name], ask(weights, **{"round_number": number, "sigma": sigma}))
            assert list(reply.content) == ["config", "arrays"]
            upload = reply.content["arrays"]["weights"].numpy()
            assert upload.dtype == np.float32
            assert np.array_equal(upload, expected[number][index])
    assert charges(owners["anna"]) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sigma": 0.05}, "sigma is not the contracted one"),
        ({"sigma": "0.1"}, "the sigma cannot be read"),
        ({"job": "job-2"}, "no contract in this job"),
        ({"job": "../../carla/jobs/job-1"}, "no such job"),
        ({"job": 1}, "the job cannot be read"),
        ({"round_number": -1}, "round number cannot be read"),
        ({"round_number": 0}, "round number cannot be read"),
        ({"round_number": True}, "round number cannot be read"),
        ({"round_number": None}, "round number cannot be read"),
        ({"round_number": None, "round": 1}, "round number cannot be read"),
        ({"round_number": 3}, "no such round"),
        ({"round_number": 99999}, "no such round"),
    ],
)
def test_what_is_not_in_the_contract_is_refused_and_costs_nothing(
    order: Order, owners: dict[str, Config], change: Config, reason: str
) -> None:
    reply = call(owners["anna"], ask(start(order), **change))
    assert reply.has_error()
    assert reply.error.code == DECLINED
    assert reason in str(reply.error.reason)
    assert charges(owners["anna"]) == 0


@pytest.mark.parametrize("kind", ["nan", "short", "double"])
def test_a_model_that_is_not_the_contracted_one_is_refused(
    order: Order, owners: dict[str, Config], kind: str
) -> None:
    weights = start(order)
    bad = {"nan": weights * np.nan, "short": weights[1:], "double": weights.astype(np.float64)}
    reply = call(owners["anna"], ask(bad[kind]))
    assert reply.has_error()
    assert reply.error.code == DECLINED
    assert charges(owners["anna"]) == 0


def test_without_sigma_in_the_message_the_owner_takes_its_own(
    order: Order, owners: dict[str, Config]
) -> None:
    told, untold = (call(owners["anna"], ask(start(order), sigma=s)) for s in (0.1, None))
    first, second = (reply.content["arrays"]["weights"].numpy() for reply in (told, untold))
    assert np.array_equal(first, second)
    assert charges(owners["anna"]) == 1  # the very same bits once more


def other(settings: Any = None) -> nn.Module:
    """As many parameters as ``small``, but another function of them."""
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def test_no_noise_serves_for_two_updates_whatever_app_asks(tmp_path: Path) -> None:
    """Else the difference of two updates would come out bare, and count for nothing."""
    order = make_order("secure", sigma=50.0)
    config = deal(order, NAMES, {}, tmp_path)[NAMES[0]]
    first = start(order)

    def upload(weights: np.ndarray, models: Any, number: int = 1) -> np.ndarray:
        task = {"round_number": number, "sigma": 50.0}
        reply = call(config, ask(weights, **task), models)
        return np.array(reply.content["arrays"]["weights"].numpy())

    made = upload(first, small)
    assert np.array_equal(upload(first, small), made)
    assert np.array_equal(upload(first, other), made)  # what went out, not one with its noise
    assert charges(config) == 1
    moved = upload(first + np.float32(1e-3), small)
    later = upload(first, small, 2)
    again = upload(first, other)
    assert charges(config) == 4
    for one, two in ((made, moved), (made, later), (made, again), (moved, again)):
        spread = float(np.std(one - two)) / (50.0 * np.sqrt(2.0))
        assert 0.6 < spread < 1.5


def test_what_cannot_be_charged_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = make_order("secure")
    config = deal(order, NAMES, {}, tmp_path)[NAMES[0]]
    with monkeypatch.context() as patched:
        patched.setattr("noisemarket.owner.wallet.Wallet.spend", lambda *given: 1 / 0)
        assert call(config, ask(start(order))).has_error()
    assert not (tmp_path / "anna" / "jobs" / JOB / "release.npz").exists()
    assert not call(config, ask(start(order))).has_error()
    assert charges(config) == 1


def test_all_that_an_owner_keeps_is_for_it_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        config = deal(make_order(), NAMES, {}, tmp_path / "owners")[NAMES[0]]
        call(config, ask(start(make_order())))
    finally:
        os.umask(before)
    folder = Path(config["owner-folder"])
    names = {path.name for path in folder.rglob("*")}
    kept = {"signing-key.pem", "records.npz", "terms.json", "release.npz"}
    wallet = OwnerFolder(NAMES[0], folder).wallet().path
    assert names == kept | {"jobs", JOB, wallet.name, wallet.with_suffix(".head").name}
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_an_open_folder_is_refused(order: Order, owners: dict[str, Config]) -> None:
    folder = Path(owners["anna"]["owner-folder"])
    folder.chmod(0o750)
    reply = call(owners["anna"], ask(start(order)))
    assert reply.error.reason == "the owner's folder is open to others: chmod 700"
    folder.rename(folder.with_name("elsewhere"))
    reply = call(owners["anna"], ask(start(order)))
    assert reply.error.reason == "the owner's folder is not there"


def test_a_spent_budget_is_refused_without_saying_how_much(tmp_path: Path) -> None:
    folder = OwnerFolder("anna", tmp_path)
    order = make_order("secure")
    folder.keep_records(order.job.data.train_images[:20], order.job.data.train_labels[:20])
    terms = contract(
        "anna",
        JOB,
        sigma=0.1,
        shards=4,
        settings={"records_per_shard": 5},
        rounds=100,
        rho_cap=80.0,
    )  # a round costs 12.5 + ...
    agree(folder, terms, {"index": 0, "seed": 0, "model": {}})
    config = {"owner": "anna", "owner-folder": str(tmp_path)}
    numbers = [{"round_number": number} for number in range(1, 9)]
    replies = [call(config, ask(start(order), **number)) for number in numbers]
    errors = [reply.error for reply in replies if reply.has_error()]
    assert 0 < len(errors) < 8
    assert {error.reason for error in errors} == {"the privacy budget is spent"}
    spent = charged(folder, JOB)
    assert sum(charge.rho for charge in spent) <= 80.0
    assert len(spent) == 8 - len(errors)


class Leaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, images: Any) -> Any:
        raise RuntimeError(f"secret record {images[0].tolist()}")


def test_a_failure_tells_the_curator_nothing_but_that_and_is_charged(
    order: Order, owners: dict[str, Config]
) -> None:
    weights = np.zeros(15, np.float32)
    reply = call(owners["anna"], ask(weights), lambda settings: Leaking())
    assert reply.has_error()
    assert reply.error.code == FAILED
    assert reply.error.reason == "failed on the owner's side"
    assert charges(owners["anna"]) == 1  # whether training fails may depend on a record


def test_a_release_that_was_cut_off_is_made_again_for_its_charge(
    order: Order, owners: dict[str, Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept before it goes out; so an owner that is killed is paid for all its rounds."""
    asked, keep = ask(start(order)), OwnerFolder.keep_release
    monkeypatch.setattr(OwnerFolder, "keep_release", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        call(owners["anna"], asked)
    assert charges(owners["anna"]) == 1
    monkeypatch.setattr(OwnerFolder, "keep_release", keep)
    assert not call(owners["anna"], asked).has_error()
    assert charges(owners["anna"]) == 1
    other = start(order) + np.float32(1.0)
    assert not call(owners["anna"], ask(other)).has_error()
    assert charges(owners["anna"]) == 2


def test_terms_are_fixed_once_agreed(owners: dict[str, Config]) -> None:
    folder = OwnerFolder("anna", Path(owners["anna"]["owner-folder"]))
    terms, plan = folder.terms(JOB)
    folder.agree(terms, plan)
    assert folder.terms(JOB) == (terms, plan)
    with pytest.raises(BadInput, match="cannot change"):
        folder.agree(changed(terms, sigma=0.0), plan)
    with pytest.raises(BadInput, match="cannot change"):
        folder.agree(terms, {**plan, "seed": 8})
    with pytest.raises(Declined, match="no such job"):
        folder.agree(changed(terms, job="../x"), plan)


def test_a_node_without_an_owner_refuses(order: Order) -> None:
    reply = call({}, ask(start(order)))
    assert reply.error.reason == "this node's config names no owner and owner-folder"
