"""A house: one SuperNode that serves several owners, each with its own folder, limits and contract.

Owner 0 has a node of its own; 1 and 2 share one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from flwr.app import ArrayRecord, ConfigRecord, Error, RecordDict
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.job_ends import charged, deals, job_of, own, weights
from tests.flower.market_common import make_scenario

from noisemarket.errors import BadInput
from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.owner_app import owner_app
from noisemarket.flower.records import apart, owners_of, read_houses, refusal, together
from noisemarket.flower.simulation import deal_out
from noisemarket.market.orders import prepare
from noisemarket.market.outcome import MarketOutcome
from noisemarket.owner.folder import Declined
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.process

LISTED = "houses.toml"


def grid_with_house(
    scenario: Scenario, folder: Path, *, named: bool = True, **more: Any
) -> ProcessGrid:
    """Nodes 100 (owner 0) and 101 (owners 1 and 2); ``more`` are settings of owner 2."""
    tables = {
        name: dict(config)
        for name, config in deal_out(prepare(scenario), folder / "owners").items()
    }
    first = tables.pop("0")
    tables["2"] |= more
    file = folder / "house.toml"
    file.touch(mode=0o600)
    file.write_text(tomli_w.dumps(tables))
    (folder / LISTED).write_text('south = ["1", "2"]\n')
    names = ("0", "south") if named else ("", "")
    nodes = (first, {"house": str(file)})
    return ProcessGrid(
        {
            number: Node(owner_app(), config, name)
            for number, (config, name) in enumerate(zip(nodes, names, strict=True), start=100)
        }
    )


def hold(grid: ProcessGrid, scenario: Scenario, folder: Path, **more: Any) -> MarketOutcome:
    bounds = Bounds(30.0, wait=0.2, insecure=more.pop("insecure", False))
    listed = None if bounds.insecure else folder / LISTED
    return hold_market(grid, scenario, folder, lambda line: None, bounds, None, listed)


@pytest.mark.parametrize("named", [True, False])
def test_one_message_for_all_and_the_same_contracts_and_model(
    embedded: Path, tmp_path: Path, named: bool
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_with_house(scenario, folder, named=named)
    hold(grid, scenario, folder, insecure=not named)
    assert deals(folder) == deals(embedded)
    assert np.allclose(weights(folder), weights(embedded), rtol=0, atol=1e-6)
    assert len({own(folder, name).key.public_hex for name in "012"}) == 3
    for name in "012":
        assert charged(folder, name) == [1, 2]
        assert (own(folder, name).job(job_of(folder)) / "statement.json").exists()
    to = [one.metadata.dst_node_id for one in grid.sent]
    assert to.count(101) <= to.count(100) + 1, "a message for both"
    training = [one for one in grid.sent if one.metadata.message_type == "train"]
    assert len(training) == 2 * 2
    for message in training:  # the model is in it once
        assert sum(isinstance(one, ArrayRecord) for one in message.content.values()) == 1


def test_one_owner_of_a_house_refuses_and_the_other_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_with_house(scenario, folder, **{"curator-key": "0" * 64})
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"2": "quotes: that is not the curator's key"}
    assert set(deals(folder)) == {"0", "1"}
    assert charged(folder, "1") == [1]


def test_a_whole_house_dies_and_comes_back(tmp_path: Path) -> None:
    """In the second of four rounds; back for the fourth. Its rounds are missed, not refused."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=4)
    grid = grid_with_house(scenario, folder)
    house = grid.nodes[101]

    def show(line: str) -> None:
        if line.startswith("Round 1 of"):
            del grid.nodes[101]
        if line.startswith("Round 3 of"):
            grid.nodes[101] = house

    bounds = Bounds(30.0, wait=0.2)
    outcome = hold_market(grid, scenario, folder, show, bounds, None, folder / LISTED)
    assert [one.delivered for one in outcome.results] == [(0, 1, 2), (0,), (0,), (0, 1, 2)]
    assert outcome.broken == {}
    assert [charged(folder, name) for name in "012"] == [[1, 2, 3, 4], [1, 4], [1, 4]]


def test_a_house_that_answers_nonsense_or_for_others_moves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder, rounds=1)
    grid = grid_with_house(scenario, folder)
    house, answer = grid.nodes[101], grid.nodes[101].answer

    def lie(message: Any, number: int) -> Any:
        reply = answer(message, number)
        if message.metadata.message_type == "query.key":
            parts = apart(reply.content)
            assert parts is not None
            said = {"0" if name == "1" else name: one for name, one in parts.items()}
            reply.content = together(said)
        return reply

    house.answer = lie  # type: ignore[method-assign]
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"1": "key: away"}
    keys = json.loads((folder / "curator" / "keys.json").read_text())
    assert keys["0"] == own(folder, "0").key.public_hex


def test_parts_come_apart_as_they_were_put_together() -> None:
    shared = ConfigRecord({"model": 1})
    parts = {"a": RecordDict({"config": shared}), "b": RecordDict({"config": shared}),
             "c": Error(1001, "no")}  # fmt: skip
    content = together(parts)
    assert len(content) == 3, "the table, what is shared, and the refusal"
    back = apart(content)
    assert back is not None
    assert [refusal(back[name]) for name in "abc"] == [None, None, "no"]
    assert back["b"]["config"] == shared
    assert apart(parts["a"]) is None
    for plans in (["{}"], ["no", "{}"], ['{"config": "9"}', "{}"], ["[1]", "{}"], 5):
        broken = RecordDict({"house": ConfigRecord({"owners": ["a", "b"], "records": plans})})
        with pytest.raises(Declined, match="cannot be read"):
            apart(broken)


def test_a_house_file_that_cannot_be_used_is_declined(tmp_path: Path) -> None:
    file = tmp_path / "house.toml"
    config = {"house": str(file), "rho-cap": 1.0}
    with pytest.raises(Declined, match="is not there"):
        owners_of(config)
    file.touch(mode=0o600)
    for text, problem in (("", "no table"), ("a = 1", "no table"), ("[a", "cannot be read")):
        file.write_text(text)
        with pytest.raises(Declined, match=problem):
            owners_of(config)
    file.write_text('[a]\nowner-folder = "/x"\n[b]\nrho-cap = 2.0\n')
    assert owners_of(config) == {
        "a": {"owner": "a", "owner-folder": "/x", "rho-cap": 1.0},
        "b": {"owner": "b", "rho-cap": 2.0},
    }
    file.chmod(0o644)
    with pytest.raises(Declined, match="chmod 600"):
        owners_of(config)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('s = ["1", "9"]', "of s is not an owner"),
        ('s = ["1"]\nt = ["1"]', "in two houses"),
        ('s = "1"', "give lines such as"),
        ('0 = ["1"]', "that no owner has"),
        ("s = [", "cannot be read"),
    ],
)
def test_a_list_of_houses_that_is_wrong_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / LISTED).write_text(text)
    with pytest.raises(BadInput, match=problem):
        read_houses(tmp_path / LISTED, ["0", "1", "2"])
