"""A deployment of real Flower processes on loopback, with TLS and authentication: who may take
part, what it says when it fails, and that no process outlives it."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.flower.deploy.certificates import make_node_key
from noisemarket.flower.deploy.deployment import Deployment, NodeSetup
from noisemarket.flower.deploy.guard import marked_processes
from noisemarket.flower.deploy.superlink import RunEnd

APP = Path(__file__).resolve().parents[2] / "examples" / "flower-market"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


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
        assert len(marked_processes(token)) >= 4  # SuperLink, SuperNode and the SuperExec of each
        main.kill()
        main.wait()
    end = time.monotonic() + 30
    while marked_processes(token) or Path(folder).exists():
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
    place = "noisemarket.flower.deploy.superlink.flower_command"
    monkeypatch.setattr(place, lambda name: str(command))
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

        def __init__(self, nodes: object, curator: Path) -> None: ...
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
