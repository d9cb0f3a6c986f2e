"""A bisection over a grid in this process: the contracts of one process, in few messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.flower.job_ends import deals
from tests.flower.market_common import dying, grid_of, hold
from tests.flower.overheard import Overheard
from tests.flower.test_clock_market import COSTS, MARKUPS, clock_scenario

from noisemarket.market.job import run_market
from noisemarket.owner.owner_messages import Quotes
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.process


def bisection_scenario(folder: Path) -> Scenario:
    """The three owners of the clock's tests; the first two can come to a deal."""
    return clock_scenario(folder, mechanism="bisection", budget="none", rounds=1, surface="printed")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same market in one process."""
    folder = tmp_path_factory.mktemp("embedded") / "run"
    run_market(bisection_scenario(folder), folder, workers=1).finish()
    return folder


def test_the_contracts_of_one_process_in_few_messages(embedded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := bisection_scenario(folder), folder)
    hold(grid, scenario, folder)
    assert deals(folder) == deals(embedded)
    assert sum(saving > 0 for saving, *_ in deals(folder).values()) >= 2
    sent = [one.metadata for one in grid.sent if one.metadata.message_type == Quotes.kind]
    counts = Counter(one.dst_node_id for one in sent)
    assert len(counts) == 3
    assert max(counts.values()) <= 40
    said = Overheard([*grid.sent, *grid.heard])
    assert [one for one in (*COSTS.values(), *MARKUPS.values()) if said.says(one)] == []


@pytest.mark.parametrize("at", [3, 8, 16])
def test_a_negotiation_that_is_cut_off_goes_on(embedded: Path, tmp_path: Path, at: int) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := bisection_scenario(folder), folder)
    with dying(grid, at):
        hold(grid, scenario, folder)
    hold(grid, scenario, folder)
    assert deals(folder) == deals(embedded)
