"""A job that began elsewhere goes on over real Flower processes, with new keys and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.flower.job_ends import charged, same_model, told
from tests.flower.market_common import grid_of, make_scenario

from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.deploy import deployment
from noisemarket.flower.deploy.single_machine import run_on_flower
from noisemarket.flower.line import Bounds
from noisemarket.market.events import Settled
from noisemarket.market.job import run_market
from noisemarket.market.preparation import prepare
from noisemarket.market.summary import summary

NAMES = ["0", "1"]
SETTINGS: dict[str, Any] = {"owners": 2, "rounds": 4, "interactions_per_message": 200}

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


class Stopped(Exception):
    pass


def test_a_job_goes_on_where_all_is_new_but_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SuperLink, SuperNodes, their keys and numbers; what came before was played in this process,
    over Flower's own objects."""
    here, folder = tmp_path / "here", tmp_path / "run"
    expected = run_market(make_scenario(here, **SETTINGS), here, workers=1).finish()
    scenario = make_scenario(folder, **SETTINGS)

    def show(line: str) -> None:
        if line.startswith("Round 3 of"):
            raise Stopped

    with pytest.raises(Stopped):
        hold_market(grid_of(scenario, folder), scenario, folder, show, Bounds(5.0, wait=1.0))

    monkeypatch.setattr(deployment, "poll_interval", lambda nodes, cores: 0.5)
    market = run_on_flower(prepare(scenario), folder)
    assert isinstance(list(market)[-1], Settled)
    assert told(folder) == told(here)
    ours, theirs = (
        {k: v for k, v in summary(one).items() if k not in ("seconds", "ledger_head")}
        for one in (market.outcome, expected)
    )
    assert ours == theirs
    assert [one.owner for one in market.outcome.statements] == NAMES
    assert same_model(folder, here)
    assert all(charged(folder, name) == [1, 2, 3, 4] for name in NAMES)
