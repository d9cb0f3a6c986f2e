"""A curator between real hosts knows nothing of its owners' costs, and needs nothing of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
from tests.flower.market_common import grid_of, make_scenario

from noisemarket.flower.job import hold_market
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.scenario import Scenario, load_scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flower.md"
COSTS = ((0.6, 0.1), (1.4, 0.0), (3.0, 0.3))
HEAD = "owner,privacy_cost,data_size,beta,markup\n"


def scenario_of(folder: Path, costs: tuple[tuple[float, float], ...]) -> Scenario:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"owner-{n},{cost},20,1.0,{markup}\n" for n, (cost, markup) in enumerate(costs)]
    (folder / "owners.csv").write_text(HEAD + "".join(rows))
    return make_scenario(folder, owners=3, file=str(folder / "owners.csv"), rounds=1)


def signed(scenario: Scenario, folder: Path) -> dict[str, tuple[float, int]]:
    grid = grid_of(scenario, folder)  # the owners have their folders, or get them
    hold_market(grid, scenario, folder, lambda line: None, timeout=30.0, wait=0.2)
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        return {
            one.contract.owner: (one.contract.sigma, one.contract.payment)
            for one in contracts(ledger)
        }


def test_the_same_contracts_whatever_the_curator_writes_as_costs(tmp_path: Path) -> None:
    real, blind = tmp_path / "real", tmp_path / "blind"
    expected = signed(scenario_of(real, COSTS), real)
    assert len(set(expected.values())) > 1  # costs count, on the owners' side
    shutil.copytree(real / "owners", blind / "owners")
    for jobs in (blind / "owners").glob("*/jobs"):
        shutil.rmtree(jobs)
    assert signed(scenario_of(blind, ((0.0, 0.0),) * 3), blind) == expected


def test_the_scenario_for_several_machines_is_one(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (owners,) = re.findall(r"^```csv\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (scenario,) = [
        block
        for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if "[population]" in block
    ]
    (tmp_path / "owners.csv").write_text(owners)
    (tmp_path / "scenario.toml").write_text(scenario)
    population = load_scenario(tmp_path / "scenario.toml").environment().population
    assert list(population.names) == ["north-hospital", "south-hospital"]
    assert not np.any(population.privacy_cost)
    assert not np.any(population.markup)
