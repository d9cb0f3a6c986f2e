"""A small market for the tests of Flower: three owners, pictures of sixteen by sixteen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.conftest import Node, ProcessGrid
from tests.tiny_images import idx

from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.owner_app import owner_app
from noisemarket.flower.simulation import deal_out
from noisemarket.market.orders import prepare
from noisemarket.market.outcome import MarketOutcome
from noisemarket.scenario import Scenario, dump_scenario, load_scenario

NAMES = ["0", "1", "2"]
BOUNDS = {"timeout": 30.0, "wait": 0.2}
MOST_ASKED = 40
"""Messages to an owner in a job, besides those of its rounds."""


def write_pictures(folder: Path) -> None:
    """Pictures of three kinds that are told apart easily, as idx files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for half, count in (("train", 90), ("t10k", 30)):
        labels = np.arange(count) % 3
        images = rng.integers(0, 60, (count, 16, 16)) + 60 * labels[:, None, None]
        (folder / f"{half}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{half}-labels-idx1-ubyte").write_bytes(idx(labels))


def make_scenario(folder: Path, **more: Any) -> Scenario:
    """The scenario, written into the job's folder; costs are low, so that most owners trade."""
    write_pictures(folder.parent / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "mechanism": "dypp", "owners": 3, "rounds": 2, "noise": "simulated",
        "data": str(folder.parent / "pictures"), "iterations": 400,
        "interactions_per_message": 50,
        "window": 100, "saving_levels": 4, "payment_levels": 6, "privacy_cost": 0.61803,
        "markup": 0.07771, "seed": 7, "surface": "sharded-mnist", **more,
    }  # fmt: skip
    scenario = load_scenario(preset="market", settings=settings)
    (folder / "scenario.toml").write_text(dump_scenario(scenario))
    return scenario


def grid_of(scenario: Scenario, folder: Path, *, named: bool = True) -> ProcessGrid:
    """The owners of a scenario with their folders, on a grid inside this process."""
    configs = deal_out(prepare(scenario), folder / "owners")
    return ProcessGrid(
        {
            number: Node(owner_app(), dict(config), name if named else "")
            for number, (name, config) in enumerate(configs.items(), start=100)
        }
    )


def hold(grid: ProcessGrid, scenario: Scenario, folder: Path, **more: Any) -> MarketOutcome:
    return hold_market(grid, scenario, folder, lambda line: None, Bounds(**BOUNDS, **more))


class Broken(Exception):
    """The end of a ServerApp, played by a test."""


@contextmanager
def dying(grid: ProcessGrid, at: int) -> Iterator[None]:
    """The ServerApp dies when its message number ``at`` has been answered, and loses the reply."""
    push = grid.push_messages

    def cut(messages: Any) -> Any:
        pushed = push(messages)
        if len(grid.sent) >= at:
            raise Broken
        return pushed

    grid.push_messages = cut  # type: ignore[method-assign]
    with pytest.raises(Broken):
        yield
    grid.push_messages = push  # type: ignore[method-assign]


def rubbish(kind: str, content: RecordDict) -> ClientApp:
    """An app that answers one kind of message with rubbish and is silent otherwise."""
    app = ClientApp()

    @app.query(kind)
    def send(message: Message, context: Context) -> Message:
        return Message(content, reply_to=message)

    return app
