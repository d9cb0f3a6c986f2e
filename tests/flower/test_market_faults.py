"""A market over a grid in this process whose owners, answers or settings are not in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.job_ends import deals, weights
from tests.flower.market_common import (
    BOUNDS,
    NAMES,
    grid_of,
    hold,
    make_scenario,
    rubbish,
)

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import exclusive, load_arrays, save_arrays
from noisemarket.flower import flower_channel as channel
from noisemarket.flower.curator_app import hold_market, market_over_flower
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.host_files import CURATOR
from noisemarket.flower.records import content as content_of
from noisemarket.flower.records import plain_of
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.market import owners
from noisemarket.market.events import EVENTS, LeftOut, from_line
from noisemarket.owner import owner_messages as said
from noisemarket.owner.owner_messages import PROTOCOL
from noisemarket.scenario import Scenario, dump_scenario, load_scenario

pytestmark = pytest.mark.process

RUBBISH = [
    RecordDict(),
    RecordDict({"config": ConfigRecord({"message": '{"batch": 0, "key": "x"}'})}),
    RecordDict(
        {
            "config": ConfigRecord({"message": '{"batch": 0}'}),
            "arrays": ArrayRecord(
                {
                    "proposals": Array(np.full(50, 250, np.uint8)),
                    "signed": Array(np.ones(50, np.uint8)),
                }
            ),
        }
    ),
    RecordDict(
        {
            "arrays": ArrayRecord(
                {"proposals": Array("float32", (9,), "numpy.ndarray", b"\x93NUMPY x")}
            )
        }
    ),
]


@pytest.mark.parametrize("content", RUBBISH)
def test_an_owner_that_answers_rubbish_is_left_out_and_the_job_goes_on(
    tmp_path: Path, content: RecordDict
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    grid.nodes[101].app = rubbish("quotes", content)
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"1": "quotes: unusable answers"}
    assert set(outcome.payments) == {"0", "2"}
    assert set(deals(folder)) == {"0", "2"}
    lines = (folder / "curator" / EVENTS).read_text().splitlines()
    assert LeftOut("1", "quotes: unusable answers") in [from_line(line) for line in lines]


def test_owners_that_are_away_are_left_out_and_no_stranger_takes_their_place(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    away = grid.nodes.pop(102)
    grid.nodes[103] = Node(away.app, away.config, "mallory")
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"2": "quotes: away"}
    assert not any(message.metadata.dst_node_id == 103 for message in grid.sent)
    for node in [100, 101]:
        del grid.nodes[node]
    again = tmp_path / "again"
    with pytest.raises(NoisemarketError, match="No owner"):
        hold(grid, make_scenario(again), again)
    lines = (again / "curator" / EVENTS).read_text().splitlines()
    assert "No owner" in json.loads(lines[-1])["problem"]


def test_a_node_without_a_name_takes_nobodys_place(tmp_path: Path) -> None:
    """Beside nodes that are known by their keys, one that only says that it is an owner."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    grid.nodes[101].name = ""
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"1": "quotes: away"}
    assert not any(message.metadata.dst_node_id == 101 for message in grid.sent)


def test_one_curators_key_for_all_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CURATOR, str(tmp_path))
    folder, own_folder = tmp_path / "run", tmp_path / "own"
    key = KeyPair.create(own_folder).public_hex
    scenario = make_scenario(folder, rounds=1)
    grid = grid_of(scenario, folder)
    for node in grid.nodes.values():
        node.config["curator-key"] = key
    (folder / "scenario.toml").write_text(dump_scenario(scenario))
    config = {"scenario": "run/scenario.toml", "folder": "run", **BOUNDS}
    with pytest.raises(NoisemarketError, match="No owner"):
        market_over_flower(grid, config | {"folder": "other"}, lambda line: None)
    outcome = market_over_flower(grid, config | {"curator-folder": "own"}, lambda line: None)
    assert outcome.left_out == {}
    assert not (folder / "curator" / "signing-key.pem").exists()
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        assert {one.contract.curator_key for one in contracts(ledger)} == {key}


def test_an_owner_that_refuses_is_asked_three_times_and_a_late_one_until_it_is_there(
    embedded: Path, tmp_path: Path
) -> None:
    """A refusal counts once, and not again when the next answer is only late."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder)
    push, asked = grid.push_messages, list[int]()

    def disturb(messages: Any) -> Any:
        made = list(messages)
        pushed = list(push(made))
        for name, message in zip(pushed, made, strict=True):
            if message.metadata.message_type != "query.contract":
                continue
            number = message.metadata.dst_node_id
            asked.append(number)
            if number == 102 or asked.count(number) == 1 == number - 100:
                grid.replies[name] = Message(Error(1001, "no"), reply_to=message)
            elif number == 101 and asked.count(number) < 5:
                del grid.replies[name]
        return pushed

    grid.push_messages = disturb  # type: ignore[method-assign]
    outcome = hold_market(grid, scenario, folder, lambda line: None, Bounds(0.5, wait=20.0))
    assert asked.count(102) == 3
    assert asked.count(101) == 5
    assert outcome.left_out == {"2": "contract: no"}
    assert {name: one for name, one in deals(embedded).items() if name != "2"} == deals(folder)


def test_an_exchange_may_take_as_long_as_its_timeout(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := make_scenario(folder, rounds=1), folder)
    hold_market(grid, scenario, folder, lambda line: None, Bounds(300.0, wait=0.2))
    lives = {one.metadata.message_type: one.metadata.ttl for one in grid.sent}
    assert lives.pop("query.settled") == 60.0
    assert set(lives.values()) == {300.0}


def cut_off_after_one_message(grid: ProcessGrid, scenario: Scenario, folder: Path) -> None:
    """A market that ends when each owner has answered once in the game."""
    push, kinds = grid.push_messages, list[str]()

    def cut_off(messages: Any) -> Any:
        made = list(messages)
        kinds.extend(one.metadata.message_type for one in made)
        if kinds.count("query.quotes") > len(NAMES):
            raise NoisemarketError("cut off")
        return push(made)

    grid.push_messages = cut_off  # type: ignore[method-assign]
    with pytest.raises(NoisemarketError, match="cut off"):
        hold(grid, scenario, folder)
    grid.push_messages = push  # type: ignore[method-assign]


def test_messages_of_other_payoffs_are_refused(tmp_path: Path) -> None:
    """The curator's players would not be where the owners left them."""
    folder = tmp_path / "run"
    grid = grid_of(scenario := make_scenario(folder), folder)
    cut_off_after_one_message(grid, scenario, folder)
    other = load_scenario(folder / "scenario.toml", settings=["quality_value=0.21"])
    with pytest.raises(BadInput, match="are of another negotiation"):
        hold(grid, other, folder)
    assert len(hold(grid, scenario, folder).results) == 2


def test_replies_of_another_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else players would go on from signatures without proposals, which were called offers."""
    folder = tmp_path / "run"
    grid = grid_of(scenario := make_scenario(folder), folder)
    cut_off_after_one_message(grid, scenario, folder)
    with monkeypatch.context() as patch:
        patch.setattr(owners, "PROTOCOL", PROTOCOL + 1)
        with pytest.raises(BadInput, match="are of another negotiation"):
            hold(grid, scenario, folder)
    replies = folder / "curator" / "answers" / "000001.npz"
    kept = load_arrays(replies)
    save_arrays(replies, **{f"owner {name}": kept[name] for name in kept})
    with pytest.raises(BadInput, match="cannot be read"):
        hold(grid, scenario, folder)


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    """Nothing in it is read or written before it is held, whatever else is wrong."""
    folder = tmp_path / "run"
    scenario, curator = make_scenario(folder), folder / "curator"
    curator.mkdir(mode=0o700)
    files = curator / "left-out.json", curator / EVENTS
    for file in files:
        file.write_text("of the other run")
    with exclusive(curator, "folder"), pytest.raises(BadInput, match="is in use"):
        hold_market(ProcessGrid({}), scenario, folder, houses=folder / "missing.toml")
    assert [file.read_text() for file in files] == ["of the other run"] * 2


def test_owners_are_asked_so_many_at_a_time(embedded: Path, tmp_path: Path) -> None:
    """Never more at once, and the same contracts."""
    folder = tmp_path / "run"
    grid = grid_of(scenario := make_scenario(folder), folder)
    push, pull = grid.push_messages, grid.pull_messages
    out, most = set[str](), list[int]()

    def count(messages: Any) -> Any:
        pushed = list(push(messages))
        out.update(pushed)
        most.append(len(out))
        return pushed

    def one_by_one(names: Any) -> Any:
        found = list(pull(list(names)[:1]))
        out.difference_update(reply.metadata.reply_to_message_id for reply in found)
        return found

    grid.push_messages, grid.pull_messages = count, one_by_one  # type: ignore[method-assign]
    hold_market(grid, scenario, folder, lambda line: None, Bounds(30.0, wait=0.2, at_once=2))
    assert max(most) == 2
    assert deals(folder) == deals(embedded)


@pytest.mark.parametrize("kind", ["quotes", "key", "contract", "signed"])
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
    outcome = hold_market(grid, scenario, folder, lambda line: None, Bounds(1.0, wait=20.0))
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
        if message.metadata.message_type == "query.contract":
            good = said.Signature.read(*plain_of(reply.content)).signature
            bad = said.Signature(("1" if good[0] != "1" else "2") + good[1:])
            return Message(content_of(bad.plain()), reply_to=message)
        return reply

    grid.nodes[100].answer = forged  # type: ignore[method-assign]
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"0": "contract: unusable answers"}
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
    outcome = hold_market(grid, scenario, folder, lambda line: None, Bounds(3.0, wait=0.5))
    assert [one.delivered for one in outcome.results] == [(0, 2), (0, 2)]
    assert [one.refused for one in outcome.results] == [((1, "missing"),), ()]
    agreed = deals(folder)["1"][2]
    assert agreed > 0
    assert outcome.payments["1"] == 0  # it delivered nothing
    assert [one.releases for one in outcome.statements] == [2, 1, 2]  # asked once: counted once


def test_what_cannot_be_played_by_messages_is_refused_first(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, mechanism="equilibrium")
    grid = ProcessGrid({})
    with pytest.raises(BadInput, match="needs the private numbers of all owners"):
        hold(grid, scenario, folder)
    assert grid.sent == []


@pytest.mark.parametrize("setting", ["scenario", "folder", "curator-folder"])
@pytest.mark.parametrize("path", ["/data/market", "../market", "jobs/../../market"])
def test_a_path_in_the_settings_is_refused_because_owners_see_them(
    setting: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_scenario(tmp_path / "run")
    config = {"scenario": "run/scenario.toml", "folder": "run", setting: path}
    monkeypatch.delenv(CURATOR, raising=False)
    with pytest.raises(BadInput, match=r"in the environment of the SuperLink|owners see"):
        market_over_flower(None, config)  # type: ignore[arg-type]
    monkeypatch.setenv(CURATOR, str(tmp_path))
    with pytest.raises(BadInput, match=f"{setting}.*{path}.*owners see the settings"):
        market_over_flower(None, config)  # type: ignore[arg-type]


@pytest.mark.parametrize(("curator", "owner"), [(1, PROTOCOL), (PROTOCOL, 1)])
def test_a_curator_of_another_version_is_told_so(
    curator: int, owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol 1 had ``offers`` where there are ``proposals`` now."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder)
    monkeypatch.setattr(channel, "PROTOCOL", curator)
    monkeypatch.setattr(said, "PROTOCOL", owner)
    with pytest.raises(NoisemarketError, match="No owner has taken part"):
        hold(grid, scenario, folder)
    told = json.loads((folder / "curator" / "left-out.json").read_text())
    words = f"the curator speaks protocol {curator}, this owner {owner}: install its noisemarket"
    assert told == dict.fromkeys(NAMES, f"quotes: {words}")
