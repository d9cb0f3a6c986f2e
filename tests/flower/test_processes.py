"""A market over real Flower processes, with TLS and authentication, through every kind of kill.

One job: a node with two owners (a house) is killed in the game and comes back, the ServerApp is
killed after the first round, the SuperLink after the second, the house for good after the third. It
ends as in one process that nobody disturbed.

Slow only because Flower lets a killed node in again only when it has missed its heartbeats, here
after twelve seconds instead of a minute. Processes look for work twice a second: looking is what a
wait costs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w
from tests.flower.job_ends import charged, same_model, told
from tests.flower.market_common import MOST_ASKED, make_scenario

from noisemarket.errors import NoisemarketError
from noisemarket.flower.deploy.deployment import SUPERLINK, Deployment, NodeSetup
from noisemarket.flower.deploy.guard import marked_processes
from noisemarket.flower.deploy.single_machine import deal_out
from noisemarket.market.event_file import EVENTS, NEGOTIATING, from_line
from noisemarket.market.events import RoundTrained, Settled
from noisemarket.market.job import run_market
from noisemarket.market.preparation import prepare

APP = Path(__file__).resolve().parents[2] / "examples" / "flower-market"
SHORT_HEARTBEATS = Path(__file__).with_name("short_heartbeats")
ALONE, HOUSE = "0", "south"
NODES = [ALONE, HOUSE]
ROUNDS = 4
SETTINGS: dict[str, Any] = {"owners": 3, "rounds": ROUNDS, "interactions_per_message": 200}

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


@dataclass(frozen=True)
class Setting:
    """A running deployment of three owners (and one stranger), and the job that they train."""

    deployment: Deployment
    folder: Path

    def settings(self, **more: float) -> dict[str, str | float]:
        names = {"scenario": "scenario.toml", "folder": ".", "houses": "houses.toml"}
        return names | {"timeout": 120.0, "wait": 150.0} | more

    def seen(self) -> list[object]:
        """The events of the job so far."""
        file = self.folder / "curator" / EVENTS
        return [from_line(line) for line in file.read_text().splitlines()] if file.exists() else []

    def messages(self) -> int:
        return sum(isinstance(one, dict) and one["kind"] == NEGOTIATING for one in self.seen())

    def rounds(self) -> list[RoundTrained]:
        return [one for one in self.seen() if isinstance(one, RoundTrained)]

    def running(self, program: str) -> list[psutil.Process]:
        """The processes of the deployment that run this program."""
        found = []
        for process in marked_processes(self.deployment.processes.token):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                if any(Path(word).name == program for word in process.cmdline()[:2]):
                    found.append(process)
        return found

    def kill(self, program: str) -> None:
        """As a crash would: the one process of the deployment that runs this program."""
        (process,) = self.running(program)
        process.kill()


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("flower") / "run"
    setups = deal_out(prepare(make_scenario(folder, **SETTINGS)), folder / "owners")
    file = folder / "house.toml"
    file.touch(mode=0o600)
    file.write_text(tomli_w.dumps({one.name: dict(one.config) for one in setups[1:]}))
    (folder / "houses.toml").write_text('south = ["1", "2"]')
    house = NodeSetup(HOUSE, {"house": str(file)})
    nodes = [setups[0], house, NodeSetup("mallory", dict(setups[0].config))]
    place = folder.parent / "deployment"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SHORT_HEARTBEATS), prepend=os.pathsep)
        made = Deployment(nodes, place, register=NODES, curator=folder, poll=0.5)
    with made as deployment:
        token = deployment.processes.token
        yield Setting(deployment, folder)
    assert marked_processes(token) == []


def wait(until: Callable[[], object], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_node_that_is_not_on_the_list_cannot_take_part(setting: Setting) -> None:
    deployment = setting.deployment
    assert sorted(deployment.online()) == NODES
    wait(lambda: not deployment.processes.alive("mallory"), 60)
    assert "SuperNode ID" not in deployment.log("mallory").read_text()


def test_a_node_that_was_stopped_comes_back_under_its_number(setting: Setting) -> None:
    deployment = setting.deployment
    number = deployment.node_ids[HOUSE]
    deployment.stop_node(HOUSE)
    assert HOUSE not in deployment.online()
    deployment.restart_node(HOUSE)
    assert HOUSE in deployment.online()
    assert deployment.node_ids[HOUSE] == number
    assert deployment.log(HOUSE).read_text().count(f"SuperNode ID: {number}") >= 2


def test_an_app_that_fails_or_cannot_run_says_so(setting: Setting, tmp_path: Path) -> None:
    missing = setting.settings() | {"scenario": "missing.toml"}
    said: list[str] = []
    assert not setting.deployment.run(APP, missing, show=said.append).completed
    assert any("missing.toml" in line for line in said)
    with pytest.raises(NoisemarketError, match="flwr run failed"):
        setting.deployment.run(tmp_path)


def test_a_job_through_all_kills_ends_as_in_one_process(setting: Setting, tmp_path: Path) -> None:
    deployment, folder = setting.deployment, setting.folder
    superlink = deployment.processes.pid(SUPERLINK)

    def kill_node_and_serverapp() -> None:
        wait(lambda: setting.messages() >= 1)
        deployment.stop_node(HOUSE, kill=True)
        deployment.restart_node(HOUSE)
        wait(lambda: len(setting.rounds()) >= 1)
        setting.kill("flwr-serverapp")
        setting.kill("flwr")  # it would wait for the SuperLink to notice

    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(kill_node_and_serverapp)
        assert not deployment.run(APP, setting.settings()).completed
        killer.result()
    assert len(setting.rounds()) == 1
    assert deployment.processes.pid(SUPERLINK) == superlink

    def kill_superlink(line: str) -> None:
        if line.startswith("Round 2 of"):
            deployment.stop_superlink(kill=True)

    assert not deployment.run(APP, setting.settings(), show=kill_superlink).completed
    assert len(setting.rounds()) == 2
    assert not any(isinstance(one, Settled) for one in setting.seen())
    deployment.start_superlink()
    deployment.wait_online(2)
    wait(lambda: not setting.running("flwr-serverapp"))  # the new SuperLink knows nothing of it
    said = []

    def kill_node(line: str) -> None:
        said.append(line)
        if line.startswith("Round 3 of"):
            deployment.stop_node(HOUSE, kill=True)

    ended = deployment.run(APP, setting.settings(grace=30.0), show=kill_node)
    assert ended.completed, "\n".join(said)
    assert setting.messages() == 2  # none was sent again
    asked = deployment.log(ALONE).read_text().count("Receiving: query.")
    assert 5 <= asked <= MOST_ASKED, "quotes, key, contract, contract signed, settlement"
    assert [one.result.delivered for one in setting.rounds()] == [(0, 1, 2)] * 3 + [(0,)]

    here = tmp_path / "here"
    faults = [{"owner": name, "kind": "absent", "first": ROUNDS} for name in ("1", "2")]
    run_market(make_scenario(here, **SETTINGS, faults=faults), here, workers=1).finish()
    ours, theirs = told(folder), told(here)
    assert ours["0"] == theirs["0"]
    for name in ("1", "2"):
        assert ours[name][:3] == theirs[name][:3]  # it may have been charged before the kill
        assert [one.outcome for one in ours[name][3]] == ["delivered"] * 3 + ["missed"]
    assert same_model(folder, here)
    assert charged(folder, "0") == [1, 2, 3, 4]
    assert all(charged(folder, name)[:3] == [1, 2, 3] for name in ("1", "2"))
    names = {path.name for path in (folder / "curator").iterdir()}
    assert names >= {"checkpoint.npz", "privacy.journal", "metrics.jsonl", "model.npz"}
    assert names >= {"events.jsonl", "traffic.json"}
