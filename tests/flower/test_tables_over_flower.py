"""Owners with one CSV file each, over Flower: the same market as with all files in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.job_ends import weights
from tests.flower.market_common import BOUNDS

from noisemarket.errors import NoisemarketError
from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.host_files import set_up_owner
from noisemarket.flower.owner_app import owner_app
from noisemarket.market.job import run_market
from noisemarket.market.orders import prepare
from noisemarket.owner.folder import OwnerFolder
from noisemarket.owner.simulated import preferences
from noisemarket.scenario import Scenario, load_scenario

pytest.importorskip("pyarrow")  # the extra "tables"

pytestmark = [pytest.mark.process, pytest.mark.training, pytest.mark.compiled]

DESCRIPTION = """\
[label]
column = "outcome"
classes = ["died", "recovered"]
[columns.age]
kind = "number"
low = 0
high = 100
bins = 5
[columns.ward]
kind = "category"
values = ["surgery", "internal", "other"]
"""
SIZES = {"east": 30, "north": 50, "west": 40}


def write_tables(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "columns.toml").write_text(DESCRIPTION)
    rng = np.random.default_rng(1)
    for name, count in (SIZES | {"test": 60}).items():
        ages = rng.integers(0, 100, count)
        wards = rng.choice(["surgery", "internal", "attic"], count)
        ill = np.where(ages + rng.normal(0, 20, count) > 50, "died", "recovered")
        rows = zip(ages.tolist(), wards.tolist(), ill.tolist(), strict=True)
        lines = ["age,ward,outcome", *(f"{age},{ward},{end}" for age, ward, end in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def made(data: Path, **more: Any) -> Scenario:
    settings = {
        "mechanism": "clock", "rounds": 2, "noise": "simulated", "protection": "per_record",
        "data": str(data), "privacy_cost": 0.2, "markup": 0.1, "seed": 7,
        "surface": "printed", **more,
    }  # fmt: skip
    return load_scenario(preset="market", settings=settings)


def test_owners_need_one_csv_file_and_the_curator_none(tmp_path: Path) -> None:
    together, apart = tmp_path / "together", tmp_path / "apart"
    write_tables(together)
    whole = made(together)
    expected = run_market(whole, tmp_path / "here", workers=1).finish()

    apart.mkdir()
    for name in ("test.csv", "columns.toml"):
        (apart / name).write_bytes((together / name).read_bytes())
    rows = "".join(f"{name},{count},1.0\n" for name, count in SIZES.items())
    (apart / "owners.csv").write_text("owner,data_size,beta\n" + rows)
    scenario = made(apart, file=str(apart / "owners.csv"), currency="EUR")
    nodes = {}
    for index, name in enumerate(SIZES):
        folder = tmp_path / name
        config = {"owner": name, "allow-unbounded": True, "allow-simulated": True}
        own = preferences(prepare(whole).environment, index, 0)
        set_up_owner(folder, config, own, together / f"{name}.csv")
        config["owner-folder"] = str(folder)
        nodes[100 + index] = Node(owner_app(), config, name)
    grid = ProcessGrid(nodes)
    path, told = tmp_path / "run", list[str]()
    outcome = hold_market(grid, scenario, path, told.append, Bounds(**BOUNDS))
    assert {line.split()[2] for line in told if line.startswith("Paid ")} == {"EUR"}
    assert outcome.payments == expected.payments
    assert sum(outcome.payments.values()) > 0
    assert np.allclose(weights(path), weights(tmp_path / "here"), rtol=0, atol=1e-6)
    (job,) = (tmp_path / "north" / "jobs").iterdir()
    contract, plan = OwnerFolder("north", tmp_path / "north").terms(job.name)
    assert contract.description is not None
    assert "surgery" in plan["description"]


def test_an_owner_whose_table_does_not_fit_is_left_out(tmp_path: Path) -> None:
    together = tmp_path / "together"
    write_tables(together)
    scenario, nodes = made(together), {}
    for index, name in enumerate(SIZES):
        table = together / f"{name}.csv"
        if name == "north":
            table = tmp_path / "bad.csv"
            table.write_text('age,ward,outcome\n"1.234,5",surgery,died\n')
        config = {"owner": name, "allow-unbounded": True, "allow-simulated": True}
        own = preferences(prepare(scenario).environment, index, 0)
        set_up_owner(tmp_path / name, config, own, table)
        config["owner-folder"] = str(tmp_path / name)
        nodes[100 + index] = Node(owner_app(), config, name)
    told: list[str] = []
    try:
        hold_market(ProcessGrid(nodes), scenario, tmp_path / "run", told.append, Bounds(**BOUNDS))
    except NoisemarketError as problem:
        told.append(str(problem))
    (left,) = (line for line in told if "north is left out" in line)
    assert "do not fit the description" in left
    assert "1.234" not in left
