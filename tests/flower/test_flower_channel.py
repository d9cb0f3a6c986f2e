"""Owners over Flower's grid against the suite for all channels."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.constant import SType
from tests.conformance.channel_suite import ChannelConformance, Open
from tests.flower.market_common import BOUNDS, grid_of

from noisemarket.flower.flower_channel import Bounds, FlowerChannel, _reply
from noisemarket.market.channel import Channel
from noisemarket.market.run_folder import MarketFolder
from noisemarket.owner.owner_messages import Refused, Reply, Train, Update
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.process


def saved(save: Callable[..., None], **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, **named)
    return file.getvalue()


@pytest.mark.parametrize(
    "sent",
    [
        saved(np.savez, weights=np.zeros(3, np.float32)),
        saved(np.save, arr=np.array([{}]), allow_pickle=True),
        saved(np.save, arr=np.zeros(1000))[:-1],
        b"\x93NUMPY\x01\x00F\x00{'descr': '<f8', 'fortran_order': False, 'shape': (10**12,)}",
        b"",
    ],
    ids=["npz", "pickle", "cut off", "huge", "empty"],
)
def test_only_an_array_is_taken_for_an_upload(sent: bytes) -> None:
    """Whatever else an owner sends as its update, the curator goes on without it."""
    question, said = Train("job-1", 1, 0.1, np.zeros(3, np.float32)), ConfigRecord()
    said["message"] = '{"weights": "weights"}'

    def reply(sent: bytes) -> Reply:
        record = ArrayRecord({"weights": Array("float32", (3,), SType.NUMPY, sent)})
        return _reply(question, RecordDict({"config": said, "arrays": record}))

    assert isinstance(reply(saved(np.save, arr=np.zeros(3))), Update)
    assert reply(sent) == Refused("unusable answers")
    assert _reply(question, RecordDict({"config": said})) == Refused("unusable answers")


class TestFlowerChannel(ChannelConformance):
    @pytest.fixture
    def open_channel(self) -> Open:
        def make(scenario: Scenario, folder: Path) -> Channel:
            grid, count = grid_of(scenario, folder), scenario.population.owners
            names = [str(number) for number in range(count)]
            return FlowerChannel(grid, names, MarketFolder(folder), Bounds(**BOUNDS))

        return make
