"""A whole market over a grid in this process: parity, secrecy, faults, resumption."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.market_common import NAMES, grid_of, make_scenario

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.flower.job import hold_market
from noisemarket.flower.owner import OwnerFolder
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import Outcome, run
from noisemarket.market.event_file import EVENTS, from_line
from noisemarket.market.events import Event, LeftOut, RoundTrained, Settled
from noisemarket.market.parties import owner_folder
from noisemarket.privacy.journal import read_journal
from noisemarket.scenario import Scenario

BOUNDS = {"timeout": 30.0, "wait": 0.2}


def hold(grid: ProcessGrid, scenario: Scenario, folder: Path) -> Outcome:
    return hold_market(grid, scenario, folder, lambda line: None, **BOUNDS)


def deals(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What was signed, but for what no two jobs have in common."""
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        return {
            one.contract.owner: (
                *(one.contract.saving, one.contract.sigma, one.contract.payment),
                *(one.contract.rho_cap, one.contract.epsilon, one.state, one.paid),
            )
            for one in contracts(ledger)
        }


def weights(folder: Path) -> np.ndarray:
    with np.load(folder / "curator" / "model.npz") as model:
        return np.array(model["weights"])


def job_of(folder: Path) -> str:
    return str(json.loads((folder / "market.json").read_text())["job"])


def own(folder: Path, name: str) -> OwnerFolder:
    return OwnerFolder(name, owner_folder(folder / "owners", name))


def charged(folder: Path, name: str) -> list[int]:
    journal = own(folder, name).journal(job_of(folder))
    return [charge.round for charge in read_journal(journal).charges]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same market in one process: what every engine must come to."""
    folder = tmp_path_factory.mktemp("embedded") / "run"
    list(run(make_scenario(folder), folder, workers=1))
    return folder


@pytest.mark.parametrize("named", [True, False])
def test_the_same_contracts_and_model_as_the_embedded_market(
    embedded: Path, tmp_path: Path, named: bool
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    outcome = hold(grid_of(scenario, folder, named=named), scenario, folder)
    assert deals(folder) == deals(embedded)
    assert any(saving > 0 and paid for saving, *_, paid in deals(folder).values())
    assert np.allclose(weights(folder), weights(embedded), rtol=0, atol=1e-6)
    lines = (folder / "curator" / EVENTS).read_text().splitlines()
    seen = [one for one in map(from_line, lines) if isinstance(one, Event)]
    assert isinstance(seen[-1], Settled)
    assert [one.result for one in seen if isinstance(one, RoundTrained)] == outcome.results
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        assert str(verify(ledger).head) == outcome.head
    for name in NAMES:
        place = own(folder, name).job(job_of(folder))
        statement = json.loads((place / "statement.json").read_text())
        assert statement["paid"] == outcome.payments[name]
        assert statement["ledger_head"] == outcome.head
        assert statement["releases"] == 2
        assert charged(folder, name) == [0, 1]


def numbers(content: RecordDict) -> Iterator[Any]:
    """Every value in a message: texts, bytes, numbers, arrays."""
    for record in content.values():
        for value in record.values():
            yield value.numpy() if isinstance(value, Array) else value


def test_no_secret_is_in_any_message(tmp_path: Path) -> None:
    """Of all requests and replies of a whole job; the curator's secrets do not leave it either."""
    folder = tmp_path / "run"
    secrets = {"payment_value": 0.0812345, "privacy_weight": 2.51234, "quality_value": 0.212345,
               "payment_cost": 0.131313, "quality_weight": 0.611111}  # fmt: skip
    scenario = make_scenario(folder, noise="secure", **secrets)
    grid = grid_of(scenario, folder)
    for node in grid.nodes.values():
        private = Path(node.config["owner-folder"]) / "private.json"
        values = json.loads(private.read_text())
        private.write_text(json.dumps(values | {"seed": 1234567890123456789}))
    said: list[Message] = []
    answer = Node.answer
    for node in grid.nodes.values():

        def heard(message: Message, number: int, node: Node = node) -> Message:
            reply = answer(node, message, number)
            said.append(reply)
            return reply

        node.answer = heard  # type: ignore[method-assign]
    hold(grid, scenario, folder)
    kinds = {message.metadata.message_type for message in grid.sent}
    assert kinds == {f"query.{k}" for k in ("key", "letter", "offer", "keep", "settled")} | {
        "train"
    }
    assert len(said) == len(grid.sent)
    values = [value for one in [*grid.sent, *said] for value in numbers(one.content)]
    whole = b"\n".join(
        value.tobytes() if isinstance(value, np.ndarray)
        else value if isinstance(value, bytes) else str(value).encode()
        for value in values
    )  # fmt: skip
    hidden = ["0.61803", "0.07771", *map(str, secrets.values()), "1234567890123456789", "PRIVATE"]
    assert [word for word in hidden if word.encode() in whole] == []
    scalars = {value for value in values if isinstance(value, float)}
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    known = [0.61803, 0.07771, *secrets.values()]
    assert not scalars & set(known)
    floats = [one for one in arrays if one.dtype.kind == "f"]
    assert {len(one.reshape(-1)) for one in floats} == {weights(folder).size}
    assert not any(np.isin(np.array(known, one.dtype), one).any() for one in floats)
    for node in grid.nodes.values():
        place = Path(node.config["owner-folder"])
        for key in ("signing-key.pem", "noise.key"):
            content = (place / key).read_bytes()
            assert len(content) >= 32
            assert content not in whole
            assert content.hex().encode() not in whole
        with np.load(place / "records.npz") as records:
            for image in records["images"]:
                assert image.tobytes() not in whole
    for one in said:
        for record in one.content.values():
            assert set(record) <= {
                "key",
                "first",
                "offers",
                "signed",
                "signature",
                "kept",
                "weights",
            }


def test_the_curator_needs_no_owners_secret(embedded: Path, tmp_path: Path) -> None:
    """Its scenario may say anything of the owners' costs: the contracts are the same."""
    folder = tmp_path / "run"
    grid = grid_of(make_scenario(folder), folder)
    blind = make_scenario(folder, privacy_cost=99.0, markup=5.0, payment_value=0.5)
    hold(grid, blind, folder)
    assert deals(folder) == deals(embedded)


class Broken(Exception):
    """The end of a ServerApp, played by a test."""


@pytest.mark.parametrize("at", [1, 5, 12, 26, 28, 31, 34, 36, 37, 39])
def test_a_market_cut_off_anywhere_goes_on(embedded: Path, tmp_path: Path, at: int) -> None:
    """The ServerApp dies when its message number ``at`` has been answered, and loses the reply."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder)
    push = grid.push_messages

    def cut(messages: Any) -> Any:
        pushed = push(messages)
        if len(grid.sent) >= at:
            raise Broken
        return pushed

    grid.push_messages = cut  # type: ignore[method-assign]
    with pytest.raises(Broken):
        hold(grid, scenario, folder)
    grid.push_messages = push  # type: ignore[method-assign]
    outcome = hold(grid, scenario, folder)
    assert deals(folder) == deals(embedded)
    assert np.allclose(weights(folder), weights(embedded), rtol=0, atol=1e-6)
    assert outcome.left_out == {}
    assert all(charged(folder, name) == [0, 1] for name in NAMES)


def test_a_repeated_round_is_the_same_release_also_with_secret_noise(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, noise="secure", rounds=1)
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
    assert all(charged(folder, name) == [0] for name in NAMES)
    account = read_journal(folder / "curator" / "privacy.journal")
    assert [account.statement(owner).releases for owner in range(3)] == [1, 1, 1]


def rubbish(kind: str, content: RecordDict) -> ClientApp:
    """An app that answers one kind of message with rubbish and is silent otherwise."""
    app = ClientApp()

    @app.query(kind)
    def send(message: Message, context: Context) -> Message:
        return Message(content, reply_to=message)

    return app


RUBBISH = [
    RecordDict(),
    RecordDict({"config": ConfigRecord({"first": 0, "signature": "0" * 128, "key": "x"})}),
    RecordDict(
        {
            "config": ConfigRecord({"first": 0}),
            "arrays": ArrayRecord(
                {
                    "offers": Array(np.full(50, 250, np.uint8)),
                    "signed": Array(np.ones(50, np.uint8)),
                }
            ),
        }
    ),
    RecordDict(
        {"arrays": ArrayRecord({"offers": Array("float32", (9,), "numpy.ndarray", b"\x93NUMPY x")})}
    ),
]


@pytest.mark.parametrize("content", RUBBISH)
def test_an_owner_that_answers_rubbish_is_left_out_and_the_job_goes_on(
    tmp_path: Path, content: RecordDict
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    grid.nodes[101].app = rubbish("letter", content)
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"1": "letter: unusable answers"}
    assert set(outcome.payments) == {"0", "2"}
    assert set(deals(folder)) == {"0", "2"}
    lines = (folder / "curator" / EVENTS).read_text().splitlines()
    assert LeftOut("1", "letter: unusable answers") in [from_line(line) for line in lines]


def test_owners_that_are_away_are_left_out_and_no_stranger_takes_their_place(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    away = grid.nodes.pop(102)
    grid.nodes[103] = Node(away.app, away.config, "mallory")
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"2": "letter: away"}
    assert not any(message.metadata.dst_node_id == 103 for message in grid.sent)
    for node in [100, 101]:
        del grid.nodes[node]
    again = tmp_path / "again"
    with pytest.raises(NoisemarketError, match="No owner"):
        hold(grid, make_scenario(again), again)
    lines = (again / "curator" / EVENTS).read_text().splitlines()
    assert "No owner" in json.loads(lines[-1])["problem"]


@pytest.mark.parametrize("kind", ["letter", "key", "offer", "keep"])
def test_an_answer_that_is_lost_or_late_is_asked_for_again(
    embedded: Path, tmp_path: Path, kind: str
) -> None:
    """The owner has answered, played and signed; it gives the same answer again."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder)
    push, late = grid.push_messages, list[Message]()

    def lose(messages: Any) -> Any:
        made = list(messages)
        pushed = list(push(made))
        for name, message in zip(pushed, made, strict=True):
            asked = (message.metadata.message_type, message.metadata.dst_node_id)
            if asked == (f"query.{kind}", 101) and not late:
                late.append(grid.replies.pop(name))
        return pushed

    grid.push_messages = lose  # type: ignore[method-assign]
    quick = {"timeout": 1.0, "wait": 20.0}
    outcome = hold_market(grid, scenario, folder, lambda line: None, **quick)
    assert len(late) == 1
    assert outcome.left_out == {}
    assert deals(folder) == deals(embedded)
    assert np.allclose(weights(folder), weights(embedded), rtol=0, atol=1e-6)


def test_a_wrong_signature_is_no_signature(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    honest = grid.nodes[100].answer

    def forged(message: Message, number: int) -> Message:
        reply = honest(message, number)
        if message.metadata.message_type == "query.offer":
            good = str(reply.content["config"]["signature"])
            bad = ("1" if good[0] != "1" else "2") + good[1:]
            return Message(
                RecordDict({"config": ConfigRecord({"signature": bad})}), reply_to=message
            )
        return reply

    grid.nodes[100].answer = forged  # type: ignore[method-assign]
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"0": "offer: unusable answers"}
    assert set(outcome.payments) == {"1", "2"}


def test_an_owner_that_dies_in_training_is_missing_and_not_paid_in_full(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder)
    honest = grid.nodes[100].answer

    def dies(message: Message, number: int) -> Message:
        if message.metadata.message_type == "train":
            del grid.nodes[101]
            grid.nodes[100].answer = honest  # type: ignore[method-assign]
        return honest(message, number)

    grid.nodes[100].answer = dies  # type: ignore[method-assign]
    outcome = hold_market(
        grid, scenario, folder, lambda line: None, timeout=30, grace=0.5, wait=0.2
    )
    assert [one.delivered for one in outcome.results] == [(0, 2), (0, 2)]
    assert [one.refused for one in outcome.results] == [((1, "missing"),), ()]
    full = deals(folder)["1"]
    assert outcome.payments["1"] < full[2] or full[2] == 0
    assert [one.releases for one in outcome.statements] == [2, 1, 2]  # asked once: counted once


def test_what_cannot_be_played_by_messages_is_refused_first(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, learner="equilibrium")
    grid = ProcessGrid({})
    with pytest.raises(BadInput, match="not played by messages"):
        hold(grid, scenario, folder)
    assert grid.sent == []
