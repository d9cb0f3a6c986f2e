"""A whole market over a grid in this process: parity, secrecy, faults, resumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from tests.flower.job_ends import charged, deals, job_of, own, weights
from tests.flower.market_common import (
    NAMES,
    Broken,
    dying,
    grid_of,
    hold,
    make_scenario,
)
from tests.flower.overheard import BareUpdates, Overheard

from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.events import EVENTS, Event, RoundTrained, Settled, from_line
from noisemarket.privacy.accountant import read_journal

pytestmark = pytest.mark.process


@pytest.mark.parametrize("named", [True, False])
def test_the_same_contracts_and_model_as_the_embedded_market(
    embedded: Path, tmp_path: Path, named: bool
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder, named=named)
    outcome = hold(grid, scenario, folder, insecure=not named)
    assert deals(folder) == deals(embedded)
    assert any(saving > 0 and paid for saving, *_, paid in deals(folder).values())
    assert np.allclose(weights(folder), weights(embedded), rtol=0, atol=1e-6)
    lines = (folder / "curator" / EVENTS).read_text().splitlines()
    seen = [one for one in map(from_line, lines) if isinstance(one, Event)]
    assert isinstance(seen[-1], Settled)
    assert [one.result for one in seen if isinstance(one, RoundTrained)] == [*outcome.results]
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        assert str(verify(ledger).head) == outcome.head
    for name in NAMES:
        place = own(folder, name).job(job_of(folder))
        statement = json.loads((place / "statement.json").read_text())
        assert statement["paid_micro"] == outcome.payments[name]
        assert statement["ledger_head"] == outcome.head
        assert statement["releases"] == 2
        assert charged(folder, name) == [1, 2]


def test_an_owner_counts_in_its_own_relation_whatever_the_curator_chose(tmp_path: Path) -> None:
    """A contract that counts zero-out neighbours costs four times what it says."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder, mechanism="uniform", rounds=1, neighbours="zero_out")
    grid, owners = grid_of(scenario, folder), [own(folder, name) for name in NAMES]
    for owner in owners:
        owner.keep_private(owner.private() | {"neighbours": "replace_one"}, renew=True)
    hold(grid, scenario, folder)
    for owner in owners:
        contract = owner.contract(job_of(folder))
        costs = {line["did"]: line["rho"] for line in owner.wallet().history() if "rho" in line}
        for did in ("reserve", "spend"):
            assert costs[did] == pytest.approx(4 * contract.rho_per_round, rel=0.02), did


def test_no_secret_is_in_any_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all requests and replies of a whole job; the curator's secrets do not leave it either."""
    folder = tmp_path / "run"
    values = {"payment_value": 0.0812345, "privacy_weight": 2.51234, "quality_value": 0.212345,
              "payment_cost": 0.131313, "quality_weight": 0.611111}  # fmt: skip
    scenario = make_scenario(folder, noise="secure", false_alarm=1e-9, **values)
    grid = grid_of(scenario, folder)
    for node in grid.nodes.values():
        private = Path(node.config["owner-folder"]) / "private.json"
        own_values = json.loads(private.read_text())
        private.write_text(json.dumps(own_values | {"seed": 1234567890123456789}))
    bare = BareUpdates.of("per_record", monkeypatch)
    hold(grid, scenario, folder)
    kinds = {message.metadata.message_type for message in grid.sent}
    queries = {f"query.{kind}" for kind in ("key", "quotes", "contract", "signed", "settled")}
    assert kinds == queries | {"train"}
    assert len(grid.heard) == len(grid.sent)
    said = Overheard([*grid.sent, *grid.heard])

    numbers = [0.61803, 0.07771, *values.values(), 1234567890123456789.0]
    floats = [one for one in said.arrays if one.dtype.kind == "f"]
    assert {one.size for one in floats} == {weights(folder).size}
    assert not any(np.isin(np.array(numbers, one.dtype), one).any() for one in floats)
    environment = scenario.environment()
    surface, levels = environment.surface, environment.levels
    degrees = np.array(environment.phases[-1].beta)
    noise = (levels.sigma_max - levels.savings)[:, None]
    tables = [surface.loss(noise, degrees), surface.quality(noise, degrees)]
    tables.append(environment.curator_side().payoffs())
    drawn = [*surface.gamma, *surface.zeta, *(v for table in tables for v in table.reshape(-1))]
    telling = [float(value) for value in drawn if value % 1.0]  # 0 and 1 are in many a message
    assert len(telling) > 20
    assert [value for value in [*numbers, *telling] if said.says(value)] == []

    assert len(bare.updates) == 6
    assert any(bare.sigmas)
    bare.check(grid.sent, grid.heard)

    places = [Path(node.config["owner-folder"]) for node in grid.nodes.values()]
    for place in [*places, folder / "curator"]:
        pem = (place / "signing-key.pem").read_bytes()
        key = load_pem_private_key(pem, password=None)
        assert isinstance(key, Ed25519PrivateKey)
        assert not said.says(pem)
        assert not said.says(key.private_bytes_raw())
        assert said.says(key.public_key().public_bytes_raw())  # this one is to be known
    assert b"PRIVATE" not in said.whole
    for place in places:
        with np.load(place / "records.npz") as records:
            assert not any(said.says(image.tobytes()) for image in records["images"])
            assert not said.says(records["labels"].tobytes())
    replies = [one.content for one in grid.heard]
    texts = [json.loads(str(one["config"]["message"])) for one in replies]
    fields = {"key", "batch", "signature", "receipt", "weights"}
    assert {name for text in texts for name in text} == fields
    arrays = {name for one in replies if "arrays" in one for name in one["arrays"]}
    assert arrays == {"proposals", "signed", "weights"}


def test_the_curator_needs_no_owners_secret(embedded: Path, tmp_path: Path) -> None:
    """Its scenario may say anything of the owners' costs: the contracts are the same."""
    folder = tmp_path / "run"
    grid = grid_of(make_scenario(folder), folder)
    blind = make_scenario(folder, privacy_cost=99.0, markup=5.0, payment_value=0.5)
    hold(grid, blind, folder)
    assert deals(folder) == deals(embedded)


@pytest.mark.parametrize("at", [1, 5, 12, 26, 28, 31, 34, 36, 37, 39])
def test_a_market_cut_off_anywhere_goes_on(embedded: Path, tmp_path: Path, at: int) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder)
    with dying(grid, at):
        hold(grid, scenario, folder)
    outcome = hold(grid, scenario, folder)
    assert deals(folder) == deals(embedded)
    assert np.allclose(weights(folder), weights(embedded), rtol=0, atol=1e-6)
    assert outcome.left_out == {}
    assert all(charged(folder, name) == [1, 2] for name in NAMES)


def test_a_repeated_round_is_the_same_release_also_with_secret_noise(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, noise="secure", false_alarm=1e-9, rounds=1)
    grid = grid_of(scenario, folder)
    replies: list[bytes] = []
    push = grid.push_messages

    def cut(messages: Any) -> Any:
        made = list(messages)
        pushed = push(made)
        if made[0].metadata.message_type == "train":
            replies.append(grid.replies[next(iter(pushed))].content["arrays"]["weights"].data)
            if len(replies) == 1:
                raise Broken
        return pushed

    grid.push_messages = cut  # type: ignore[method-assign]
    with pytest.raises(Broken):
        hold(grid, scenario, folder)
    hold(grid, scenario, folder)
    assert len(replies) == 2
    assert replies[0] == replies[1]
    assert all(charged(folder, name) == [1] for name in NAMES)
    account = read_journal(folder / "curator" / "privacy.journal")
    assert [account.statement(owner).releases for owner in range(3)] == [1, 1, 1]
