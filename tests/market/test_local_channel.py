"""Owners in this process against the suite for all channels."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.channel_suite import ChannelConformance, Open

from noisemarket.market.channel import Channel, LocalChannel
from noisemarket.market.orders import prepare
from noisemarket.market.run_folder import MarketFolder
from noisemarket.market.training import SerialEngine
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training


class TestLocal(ChannelConformance):
    @pytest.fixture
    def open_channel(self) -> Open:
        def make(scenario: Scenario, folder: Path) -> Channel:
            return LocalChannel(prepare(scenario), MarketFolder(folder), SerialEngine)

        return make
