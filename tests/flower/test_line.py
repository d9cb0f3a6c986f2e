"""The curator's line to the owners: how long each has, and how many are asked at a time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, RecordDict
from tests.flower.conftest import ProcessGrid
from tests.flower.market_common import NAMES, grid_of, make_scenario

from noisemarket.errors import BadInput
from noisemarket.flower.flower_channel import Bounds, FlowerChannel, WorkersDied
from noisemarket.market.run_folder import MarketFolder

pytestmark = pytest.mark.process

FIRST = 100
"""Flower's number of the first owner's node in these grids."""


@pytest.fixture
def grid(tmp_path: Path) -> ProcessGrid:
    return grid_of(make_scenario(tmp_path / "run"), tmp_path / "run")


def line_to_all(grid: ProcessGrid, **settings: Any) -> FlowerChannel:
    line = FlowerChannel(grid, NAMES, MarketFolder(Path()), Bounds(insecure=True, **settings))
    line.known = {name: FIRST + place for place, name in enumerate(NAMES)}
    return line


def hello() -> dict[str, RecordDict]:
    return {name: RecordDict({"config": ConfigRecord({"job": "job"})}) for name in NAMES}


def test_a_silent_owner_makes_room_when_its_time_is_over(grid: ProcessGrid) -> None:
    push = grid.push_messages

    def lose_first(messages: Any) -> Any:
        made = list(messages)
        pushed = list(push(made))
        for name, message in zip(pushed, made, strict=True):
            if message.metadata.dst_node_id == FIRST:
                del grid.replies[name]
        return pushed

    grid.push_messages = lose_first  # type: ignore[method-assign]
    line = line_to_all(grid, timeout=0.6, at_once=1)
    assert list(line.send("query.hello", hello())) == NAMES[1:]
    (seen,) = line.traffic
    assert (seen.sent, seen.answered) == (len(NAMES), len(NAMES) - 1)


@pytest.mark.parametrize("at_once", [0, 1, 2])
def test_owners_that_are_asked_later_have_as_long_as_the_others(
    at_once: int, grid: ProcessGrid
) -> None:
    """The time of each counts from its own question, not from the first one."""
    push, pull = grid.push_messages, grid.pull_messages
    asked: dict[str, float] = {}

    def note(messages: Any) -> Any:
        pushed = list(push(messages))
        asked.update(dict.fromkeys(pushed, time.monotonic()))
        return pushed

    def in_time(names: Any) -> Any:
        return pull([name for name in names if time.monotonic() >= asked[name] + 1.0])

    grid.push_messages, grid.pull_messages = note, in_time  # type: ignore[method-assign]
    line = line_to_all(grid, timeout=2.5, at_once=at_once)
    assert sorted(line.send("query.hello", hello())) == NAMES


@pytest.mark.parametrize(("simulated", "longest"), [(False, 60.0), (True, 600.0)])
def test_a_simulated_node_may_take_long_to_start(
    simulated: bool, longest: float, grid: ProcessGrid
) -> None:
    """Elsewhere a node that never says who it is must not hold up the others."""
    for node in grid.nodes.values():
        node.name = ""
    bounds = Bounds(insecure=True, simulated=simulated)
    line = FlowerChannel(grid, NAMES, MarketFolder(Path()), bounds)
    assert line.present() == [0, 1, 2]
    assert {message.metadata.ttl for message in grid.sent} == {longest}


@pytest.mark.parametrize("value", [-1, 2.5, True])
def test_whoever_opens_the_line_cannot_ask_a_wrong_number_at_once(
    value: Any,
) -> None:
    with pytest.raises(BadInput, match="give a whole number of owners"):
        Bounds(at_once=value)


@pytest.mark.parametrize("simulated", [False, True])
def test_only_a_simulation_believes_that_a_worker_died(simulated: bool, grid: ProcessGrid) -> None:
    """On hosts of their own the words of an error are the owner's: it could end everybody's job."""
    line = line_to_all(grid, simulated=simulated)
    with pytest.raises(WorkersDied) if simulated else nullcontext():
        line._note_error("train", FIRST, "ActorDiedError: gone")
    assert (NAMES[0] in line.declined) is not simulated


def test_what_an_owner_refuses_with_is_no_command_to_a_terminal(grid: ProcessGrid) -> None:
    line = line_to_all(grid)
    line._note_error("query.key", FIRST, "\x1b[2J\x1b]0;paid\x07 all\nis well\u202e " + "x" * 10**6)
    said = line.declined[NAMES[0]]
    assert said.isprintable()
    assert said.startswith(r"\x1b[2J\x1b]0;paid\x07 all is well\u202e xx")
    assert len(said) < 300
