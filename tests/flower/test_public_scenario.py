"""A curator between real hosts knows nothing of its owners' costs, and needs nothing of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.flower.market_common import grid_of, make_scenario

from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.scenario import Scenario, load_scenario

pytestmark = pytest.mark.process

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "flower.md"
COSTS = ((0.6, 0.1), (1.4, 0.0), (3.0, 0.3))
HEAD = "owner,privacy_cost,data_size,beta,markup\n"
PUBLIC = "owner,data_size,beta\nowner-0,20,1.0\nowner-1,20,1.0\nowner-2,20,1.0\n"


def with_costs(costs: tuple[tuple[float, float], ...]) -> str:
    rows = [f"owner-{n},{cost},20,1.0,{markup}\n" for n, (cost, markup) in enumerate(costs)]
    return HEAD + "".join(rows)


def scenario_of(folder: Path, owners: str) -> Scenario:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "owners.csv").write_text(owners)
    return make_scenario(folder, owners=3, file=str(folder / "owners.csv"), rounds=1)


def signed(scenario: Scenario, folder: Path, real: Scenario) -> dict[str, tuple[float, int]]:
    grid = grid_of(real, folder)  # the owners have their folders, or get them
    hold_market(grid, scenario, folder, lambda line: None, Bounds(30.0, wait=0.2))
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        return {
            one.contract.owner: (one.contract.sigma, one.contract.payment)
            for one in contracts(ledger)
        }


def test_the_same_contracts_whatever_the_curator_writes_as_costs(tmp_path: Path) -> None:
    real = tmp_path / "real"
    scenario = scenario_of(real, with_costs(COSTS))
    expected = signed(scenario, real, scenario)
    assert len(set(expected.values())) > 1  # costs count, on the owners' side
    for name, owners in (("zeros", with_costs(((0.0, 0.0),) * 3)), ("nothing", PUBLIC)):
        blind = tmp_path / name
        shutil.copytree(real / "owners", blind / "owners")
        for jobs in (blind / "owners").glob("*/jobs"):
            shutil.rmtree(jobs)
        assert signed(scenario_of(blind, owners), blind, scenario) == expected


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
    environment = load_scenario(tmp_path / "scenario.toml").environment(secrets=False)
    population = environment.population
    assert list(population.names) == ["north-hospital", "south-hospital"]
    assert not np.any(population.privacy_cost)
    assert not np.any(population.markup)
