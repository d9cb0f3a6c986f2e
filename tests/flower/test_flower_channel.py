"""Owners over Flower's grid against the suite for all channels."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.channel_suite import ChannelConformance, Open
from tests.flower.market_common import BOUNDS, grid_of

from noisemarket.flower.flower_channel import FlowerChannel
from noisemarket.flower.line import Bounds
from noisemarket.market.channel import Channel
from noisemarket.market.run_folder import MarketFolder
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.process


class TestFlowerChannel(ChannelConformance):
    @pytest.fixture
    def open_channel(self) -> Open:
        def make(scenario: Scenario, folder: Path) -> Channel:
            grid, count = grid_of(scenario, folder), scenario.population.owners
            names = [str(number) for number in range(count)]
            return FlowerChannel(grid, names, MarketFolder(folder), Bounds(**BOUNDS))

        return make
