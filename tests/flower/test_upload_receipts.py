"""A curator gives a receipt of every upload; an owner without one stops, and has the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from tests.flower.market_common import dying, grid_of, hold, make_scenario
from tests.support.agreed import charges as charged

from noisemarket.flower.records import content, plain_of
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.receipts import UploadReceipt, upload_digest
from noisemarket.market.channel import UploadBook
from noisemarket.owner.folder import OwnerFolder
from noisemarket.owner.owner_messages import Train, Update

pytestmark = pytest.mark.training

ROUNDS = 4


def kept(folder: Path, owner: int, name: str) -> Path:
    (path,) = folder.glob(f"owners/owner-{owner}/jobs/*/{name}")
    return path


def charges(folder: Path, owner: int) -> int:
    path = kept(folder, owner, "contract.json").parent
    return len(charged(OwnerFolder(str(owner), path.parents[1]), path.name))


def statement(folder: Path, owner: int) -> Any:
    return json.loads(kept(folder, owner, "statement.json").read_text())


def test_the_statement_shows_a_receipt_of_every_upload(tmp_path: Path) -> None:
    """Also where the curator was killed in a round: the same upload has one receipt."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder, mechanism="uniform", rounds=ROUNDS)
    grid = grid_of(scenario, folder)
    with dying(grid, 3 * 3 + 3 + 2):  # in the second round
        hold(grid, scenario, folder)
    hold(grid, scenario, folder)
    for owner in range(3):
        uploads = statement(folder, owner)["uploads"]
        assert [one["round"] for one in uploads] == [1, 2, 3, 4]
        for number, one in enumerate(uploads, start=1):
            said = one["receipt"]
            assert (said["round"], said["digest"]) == (number, one["digest"])
            assert said["before"] == number + 1
        assert charges(folder, owner) == ROUNDS


Says = Callable[[UploadReceipt, KeyPair], UploadReceipt | None]
CURATORS: dict[str, tuple[Says, int, str]] = {
    "says nothing": (lambda said, key: None, 1, "gives no receipt"),
    "denies": (
        lambda said, key: UploadReceipt.of(key, said.contract, said.before, 0, ""), 2,
        "2 uploads did not come",
    ),
    "names another upload": (
        lambda said, key: UploadReceipt.of(key, said.contract, said.before, said.round, "0" * 64),
        1, "is of another upload",
    ),
    "gives an old one": (
        lambda said, key: UploadReceipt.of(key, said.contract, 1, said.round, said.digest), 1,
        "gives no receipt",
    ),
    "signs by another key": (
        lambda said, key: said.model_copy(update={"signature": "0" * 128}), 1, "gives no receipt",
    ),
}  # fmt: skip


@pytest.mark.parametrize("curator", CURATORS)
def test_an_owner_stops_where_a_curator(
    tmp_path: Path, curator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One upload may be lost on the way; the others of the job go on."""
    says, released, reason = CURATORS[curator]
    folder, honest = tmp_path / "run", UploadBook.receipt

    def receipt(self: UploadBook, owner: int, before: int) -> UploadReceipt | None:
        said = honest(self, owner, before)
        return says(said, self._key) if owner == 0 and before > 1 else said

    monkeypatch.setattr(UploadBook, "receipt", receipt)
    scenario = make_scenario(folder, mechanism="uniform", rounds=ROUNDS)
    grid = grid_of(scenario, folder)
    hold(grid, scenario, folder)
    assert [charges(folder, owner) for owner in range(3)] == [released, ROUNDS, ROUNDS]
    reasons = {one.error.reason for one in grid.heard if one.has_error()}
    assert any(reason in str(one) for one in reasons)


def test_after_the_settlement_an_owner_trains_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, mechanism="uniform", rounds=2)
    grid = grid_of(scenario, folder)
    hold(grid, scenario, folder)
    asked = [one for one in grid.sent if one.metadata.message_type == "train"][-1]
    number = asked.metadata.dst_node_id
    first = replace(Train.read(*plain_of(asked.content)), round_number=1)
    again = Message(content(first.plain()), number, first.kind)
    reply = grid.nodes[number].answer(again, number)
    assert reply.error.reason == "the job is settled"


@pytest.mark.parametrize("named", [0, 1])
def test_a_round_that_is_asked_for_again_and_again_counts_as_denied(
    tmp_path: Path, named: int
) -> None:
    """From another model each time: else the whole budget would go for one round's pay."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder, mechanism="uniform", rounds=ROUNDS)
    grid = grid_of(scenario, folder)
    with dying(grid, 3 * 3 + 1):  # in the first round, before anyone has trained
        hold(grid, scenario, folder)
    asked = next(one for one in grid.sent if one.metadata.message_type == "train")
    number, first = asked.metadata.dst_node_id, Train.read(*plain_of(asked.content))
    key, last = KeyPair.load(folder / "curator"), ""
    contract = json.loads(kept(folder, number - 100, "terms.json").read_text())["contract"]
    agreed, answered = Contract.from_dict(contract).id, 0
    while answered < ROUNDS:
        said = UploadReceipt.of(key, agreed, 1, named if last else 0, last * named)
        other = first.weights.copy()
        other[0] = answered
        question = replace(first, weights=other, receipt=said)
        reply = grid.nodes[number].answer(
            Message(content(question.plain()), number, first.kind), number
        )
        if reply.has_error():
            break
        answered += 1
        last = upload_digest(Update.read(*plain_of(reply.content)).weights)
    assert answered == (1 if named else 2)
    assert ("another upload" if named else "2 uploads did not come") in reply.error.reason
