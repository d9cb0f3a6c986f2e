"""Real Flower processes on loopback, with TLS and authentication: parity, kills, no orphans.

Slow only because Flower starts a process for every message: two minutes on two busy cores.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.flower.market_common import make_scenario

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.flower.deploy.certificates import make_node_key
from noisemarket.flower.deploy.deployment import Deployment, NodeSetup, RunEnd
from noisemarket.flower.deploy.guard import marked
from noisemarket.flower.deploy.single_machine import deal_out
from noisemarket.market import prepare, run_market
from noisemarket.owner.folder import OwnerFolder, owner_folder
from noisemarket.privacy.journal import read_journal
from noisemarket.scenario import Scenario

APP = Path(__file__).resolve().parents[2] / "examples" / "flower-market"
NAMES = ["0", "1", "2"]

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@dataclass(frozen=True)
class Setting:
    """A running deployment of three owners (and one stranger), and the job that they train."""

    deployment: Deployment
    scenario: Scenario
    folder: Path

    def settings(self, **more: float) -> dict[str, str | float]:
        paths = {"scenario": str(self.folder / "scenario.toml"), "folder": str(self.folder)}
        return paths | more

    def metrics(self) -> list[dict[str, object]]:
        text = (self.folder / "curator" / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("flower") / "run"
    scenario = make_scenario(folder, rounds=3, interactions_per_message=400)
    setups = deal_out(prepare(scenario), folder / "owners")
    nodes = [*setups, NodeSetup("mallory", dict(setups[0].config))]
    with Deployment(nodes, folder.parent / "deployment", register=NAMES) as deployment:
        token = deployment.processes.token
        yield Setting(deployment, scenario, folder)
    assert marked(token) == []


def test_a_node_that_is_not_on_the_list_cannot_take_part(setting: Setting) -> None:
    deployment = setting.deployment
    assert sorted(deployment.online()) == NAMES
    end = time.monotonic() + 60
    while deployment.processes.alive("mallory"):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert "SuperNode ID" not in deployment.log("mallory").read_text()


def test_one_job_through_kills_ends_with_the_embedded_engines_model(
    setting: Setting, tmp_path: Path
) -> None:
    """The SuperLink is killed after the first round, a node after the second."""
    deployment, said = setting.deployment, list[str]()

    def kill_superlink(line: str) -> None:
        said.append(line)
        if line.startswith("Round 1 of 3"):
            deployment.stop_superlink(kill=True)

    first = deployment.run(APP, setting.settings(timeout=120.0), show=kill_superlink)
    assert not first.completed
    assert any("3 owners, 3 rounds" in line for line in said)
    assert len(setting.metrics()) == 1

    deployment.start_superlink()
    deployment.wait_online(3)

    def kill_node(line: str) -> None:
        said.append(line)
        if line.startswith("Round 2 of 3"):
            deployment.stop_node("2", kill=True)

    second = deployment.run(APP, setting.settings(timeout=120.0, grace=45.0), show=kill_node)
    assert second.completed, "\n".join(said)
    rounds = setting.metrics()
    assert [one["number"] for one in rounds] == [1, 2, 3]
    assert [one["delivered"] for one in rounds] == [[0, 1, 2], [0, 1, 2], [0, 1]]

    here = tmp_path / "here"
    fault = {"owner": "2", "kind": "absent", "first": 3}
    scenario = make_scenario(here, rounds=3, interactions_per_message=400, faults=[fault])
    done = run_market(scenario, here, workers=1).finish()
    with (
        np.load(setting.folder / "curator" / "model.npz") as model,
        np.load(here / "curator" / "model.npz") as embedded,
    ):
        moved = embedded["weights"] - done.order.start().weights
        assert np.abs(moved).max() > 1e-4  # something was learned
        assert np.allclose(model["weights"], embedded["weights"], rtol=0, atol=1e-6)
    job = json.loads((setting.folder / "market.json").read_text())["job"]
    for name in NAMES:
        folder = OwnerFolder(name, owner_folder(setting.folder / "owners", name))
        rounds_charged = {charge.round for charge in read_journal(folder.journal(job)).charges}
        assert rounds_charged >= ({1, 2, 3} if name != "2" else {1, 2})


def test_a_node_that_was_stopped_comes_back_under_its_number(setting: Setting) -> None:
    deployment = setting.deployment
    number = deployment.node_ids["1"]
    deployment.stop_node("1")
    assert "1" not in deployment.online()
    deployment.restart_node("1")
    assert "1" in deployment.online()
    assert deployment.node_ids["1"] == number
    assert deployment.log("1").read_text().count(f"SuperNode ID: {number}") >= 2


def test_an_app_that_fails_or_cannot_run_says_so(setting: Setting, tmp_path: Path) -> None:
    missing = setting.settings() | {"scenario": "missing.toml"}
    said: list[str] = []
    assert not setting.deployment.run(APP, missing, show=said.append).completed
    assert any("missing.toml" in line for line in said)
    with pytest.raises(NoisemarketError, match="flwr run failed"):
        setting.deployment.run(tmp_path)


HOLDER = """
import sys, time
from noisemarket.flower.deploy.deployment import Deployment, NodeSetup

with Deployment([NodeSetup("a")], secure=False) as deployment:
    print(deployment.processes.token, deployment.folder, *deployment.online(), flush=True)
    time.sleep(300)
"""


def test_a_killed_parent_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    script = tmp_path / "holder.py"
    script.write_text(HOLDER)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as main:
        assert main.stdout is not None
        token, folder, *online = main.stdout.readline().split()
        assert len(online) == 1
        assert len(marked(token)) >= 4  # SuperLink, SuperNode and the SuperExec of each
        main.kill()
        main.wait()
    end = time.monotonic() + 30
    while marked(token) or Path(folder).exists():
        assert time.monotonic() < end, "a process or its folder outlives its parent"
        time.sleep(0.1)


def test_an_exception_stops_everything(tmp_path: Path) -> None:
    broken = Deployment([NodeSetup("a")], tmp_path / "dep", secure=False, patience=60)
    (tmp_path / "dep" / "superlink.db").mkdir()  # no database can be opened here
    with pytest.raises(NoisemarketError, match="superlink did not start"):
        broken.__enter__()
    with pytest.raises(NoisemarketError, match="not running"):
        broken.online()


def fake(path: Path, monkeypatch: pytest.MonkeyPatch, script: str = "") -> Deployment:
    """A deployment that starts nothing, and whose ``flwr`` is a script."""
    command = path / "flwr"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o700)
    monkeypatch.setattr("noisemarket.flower.deploy.deployment._command", lambda name: str(command))
    nothing = SimpleNamespace(start=lambda *given: None, environment=lambda home: {})
    monkeypatch.setattr(Deployment, "processes", nothing)
    monkeypatch.setattr(Deployment, "_wait_port", lambda *given: None)
    made = Deployment([NodeSetup("a", {"privacy-cost": 1.5})], path / "deployment", patience=0.5)
    made._ports = {"superlink": 1, "fleet api": 2, "a": 3}
    made._keys = {"a": make_node_key(made.folder / "keys", "a")}
    return made


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exec sleep 30", "has not answered within 0.5 seconds"),
        ("exit 3", "supernode failed"),
        ("echo nonsense", "cannot be understood: nonsense"),
        ("echo '{\"nodes\": 3}'", "cannot be understood"),
        ("echo '{\"nodes\": [{}]}'", "cannot be understood"),
    ],
)
def test_a_flwr_that_hangs_or_babbles_is_said_in_words(
    script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = fake(tmp_path, monkeypatch, script)
    with pytest.raises(NoisemarketError, match=problem):
        deployment.online()
    with pytest.raises(NoisemarketError, match=problem):
        deployment.register("a")


def test_what_a_deployment_writes_is_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o022)
    try:
        deployment = fake(tmp_path, monkeypatch)
        deployment.start_superlink()
        deployment.start_node("a")
    finally:
        os.umask(before)
    files = {path: path.stat().st_mode & 0o777 for path in deployment.folder.rglob("*")}
    assert deployment.folder.stat().st_mode & 0o777 == 0o700
    for name in ("superlink.db", "nodes/a.toml", "keys/a"):
        assert files[deployment.folder / name] == 0o600
    assert {mode for path, mode in files.items() if path.is_dir()} == {0o700}


def test_the_example_says_when_it_cannot_run_or_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        address = "nowhere"

        def __init__(self, nodes: object) -> None: ...
        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *given: object) -> None: ...
        def online(self) -> list[str]:
            return []

        def run(self, *given: object, **more: object) -> RunEnd:
            return RunEnd(7, "finished:failed")

    monkeypatch.setattr("noisemarket.flower.deploy.deployment.Deployment", Failing)
    monkeypatch.setattr("noisemarket.flower.deploy.single_machine.deal_out", lambda *given: [])
    monkeypatch.setattr(sys, "argv", ["local.py", "--folder", str(tmp_path / "job")])
    monkeypatch.syspath_prepend(str(APP))  # as for a script
    for code, words in (("Run 7 ended early: finished:failed.", ""), (2, "exists already")):
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(APP / "local.py"), run_name="__main__")
        sys.modules.pop("prepare", None)
        assert ended.value.code == code
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("names", [[], ["a", "a"], ["superlink"], ["../a"], ["a b"]])
def test_bad_names_are_refused(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        Deployment([NodeSetup(name) for name in names], tmp_path)


def test_the_run_folder_is_the_embedded_ones(setting: Setting) -> None:
    names = {path.name for path in (setting.folder / "curator").iterdir()}
    assert names >= {"checkpoint.npz", "privacy.journal", "metrics.jsonl", "model.npz"}
    assert names >= {"events.jsonl", "traffic.json"}
