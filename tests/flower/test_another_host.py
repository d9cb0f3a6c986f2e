"""A curator that dies and goes on elsewhere: the ledger is on PostgreSQL, its folder is copied.

The owners stay where they are, and so do their folders.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.flower.job_ends import charged, weights
from tests.flower.market_common import NAMES, grid_of, make_scenario
from tests.ledger.postgres import Server

from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.job import run_market

pytestmark = pytest.mark.process

BOUNDS = Bounds(30.0, wait=0.2)


class Died(Exception):
    pass


def test_a_curator_goes_on_at_another_host(tmp_path: Path, server: Server) -> None:
    first, second, here = (tmp_path / name / "run" for name in ("first", "second", "here"))
    place = server.new_place()
    scenario = make_scenario(first, ledger=place, rounds=3)
    grid = grid_of(scenario, first)

    def die(line: str) -> None:
        if line.startswith("Round 2 of"):
            raise Died

    with pytest.raises(Died):
        hold_market(grid, scenario, first, die, BOUNDS)
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("owners"))
    shutil.rmtree(first / "curator")
    outcome = hold_market(grid, scenario, second, lambda line: None, BOUNDS)

    expected = run_market(make_scenario(here, rounds=3), here, workers=1).finish()
    assert outcome.payments == expected.payments
    assert np.allclose(weights(second), weights(here), rtol=0, atol=1e-6)
    assert not (second / "ledger.sqlite").exists()
    with open_ledger(place, create=False) as ledger:
        found = verify(ledger)
        assert (found.jobs_settled, found.contracts_paid) == (1, len(NAMES))
        assert all(one.delivered == 3 for one in contracts(ledger))
    (first / "market.json").touch()
    assert all(charged(first, name) == [1, 2, 3] for name in NAMES)
