"""What stands beside the package: the benchmark counts every message, and an app
carries nothing but its code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.flower.market_common import grid_of, make_scenario

from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.host_files import write_app

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmark() -> dict[str, Any]:
    return vars(import_module("benchmarks.flower"))


def test_the_benchmark_counts_all_messages_of_a_job_by_their_phase(
    benchmark: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    scenario = make_scenario(folder)
    grid = grid_of(scenario, folder, named=False)
    hold_market(grid, scenario, folder, lambda line: None, Bounds(wait=0.2, insecure=True))
    traffic = json.loads((folder / "curator" / "traffic.json").read_text())
    rounds = scenario.training.rounds
    kinds = benchmark["by_kind"](traffic, rounds)
    assert set(kinds) == set(benchmark["PHASES"]) - {
        *("query.price", "query.bid", "query.menu"),
    }  # nothing is left out
    times = benchmark["JOB_ROUNDS"] / rounds
    sent = len(grid.sent) + len(grid.heard)
    trained = kinds["train"].messages
    assert sum(kind.messages for kind in kinds.values()) - trained + trained / times == sent
    assert trained == 2 * 3 * benchmark["JOB_ROUNDS"]
    with pytest.raises(SystemExit, match=r"no known phase: query\.new"):
        benchmark["by_kind"]([{**traffic[0], "kind": "query.new"}], rounds)


@pytest.mark.parametrize(("negotiation", "verdict"), [(9.0, "PASS"), (11.0, "MISS")])
def test_the_benchmark_says_whether_negotiation_is_below_a_quarter(
    benchmark: dict[str, Any], negotiation: float, verdict: str
) -> None:
    measured = benchmark["Measured"](
        engine="Flower",
        owners=3,
        rounds=2,
        round_seconds=1.0,
        negotiation=negotiation,
        settlement=0.0,
        seconds=50.0,
        cpu=60.0,
        round_cpu=1.5,
        memory=500.0,
        ledger_entries=20,
    )
    assert measured.verdict().endswith(f": {verdict}")
    share = 100 * negotiation / (30 + negotiation)
    assert measured.verdict().startswith(f"negotiation {share:.0f} % of 30 rounds, 0.0 messages")


@pytest.mark.parametrize("name", ["flower-own-model", "written"])
def test_an_app_carries_its_code_alone_to_the_owners(name: str, tmp_path: Path) -> None:
    app = tmp_path / "app"
    if name == "written":
        write_app(app)
    else:
        shutil.copytree(ROOT / "examples" / name, app, ignore=shutil.ignore_patterns("runs"))
    (app / "runs" / "job").mkdir(parents=True)
    for secret in ("scenario.toml", "owners.yaml", "runs/job/private.json"):
        (app / secret).write_text("")
    command = [str(Path(sys.executable).parent / "flwr"), "build", "--app", str(app)]
    environment = {**os.environ, "FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    (made,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    others = {"pyproject.toml", "README.md", "LICENSE", ".info/CONTENT"}
    code = {str(path.relative_to(app)) for path in app.glob("*/*.py")}
    assert len(code) >= 3
    assert code <= set(names) <= code | others
