"""A market over real Flower processes, with TLS and authentication, through every kind of kill.

One job: a node with two owners (a house) is killed in the game and comes back, the SuperLink
is killed with its ServerApp after the first round, the house for good before the second.
It ends as in one process that nobody disturbed.

Slow only because Flower lets a killed node in again only when it has missed its heartbeats, here
after sixteen seconds instead of a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.flower.job_ends import charged, same_model, told
from tests.flower.market_common import MOST_ASKED, make_scenario
from tests.support.cheats import cheating
from tests.support.flower_processes import SUPERLINK, Deployment, wait

from noisemarket.flower.host_files import write_app
from noisemarket.flower.simulation import deal_out
from noisemarket.market.events import EVENTS, NEGOTIATING, RoundTrained, Settled, from_line
from noisemarket.market.job import run_market
from noisemarket.market.orders import prepare

SHORT_HEARTBEATS = Path(__file__).with_name("short_heartbeats")
ALONE, HOUSE = "0", "south"
NODES = [ALONE, HOUSE]
ROUNDS = 2
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
    app: Path

    def settings(self, **more: float) -> dict[str, str | float]:
        names = {"scenario": "scenario.toml", "folder": ".", "houses": "houses.toml"}
        return names | {"timeout": 120.0, "wait": 300.0} | more

    def seen(self) -> list[object]:
        """The events of the job so far."""
        file = self.folder / "curator" / EVENTS
        return [from_line(line) for line in file.read_text().splitlines()] if file.exists() else []

    def messages(self) -> int:
        return sum(isinstance(one, dict) and one["kind"] == NEGOTIATING for one in self.seen())

    def rounds(self) -> list[RoundTrained]:
        return [one for one in self.seen() if isinstance(one, RoundTrained)]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("flower") / "run"
    configs = deal_out(prepare(make_scenario(folder, **SETTINGS)), folder / "owners")
    file = folder / "house.toml"
    file.touch(mode=0o600)
    file.write_text(tomli_w.dumps({name: dict(configs[name]) for name in ("1", "2")}))
    (folder / "houses.toml").write_text('south = ["1", "2"]')
    nodes = {ALONE: configs["0"], HOUSE: {"house": str(file)}, "mallory": configs["0"]}
    place = folder.parent / "deployment"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SHORT_HEARTBEATS), prepend=os.pathsep)
        made = Deployment(nodes, place, folder, registered=NODES)
    with made as deployment:
        yield Setting(deployment, folder, write_app(folder.parent / "app"))
    assert made.processes() == []


def test_a_node_that_is_not_on_the_list_cannot_take_part(setting: Setting) -> None:
    deployment = setting.deployment
    wait(lambda: sorted(deployment.online()) == NODES)
    wait(lambda: not deployment.alive("mallory"))
    assert "SuperNode ID" not in deployment.log("mallory")


def test_an_app_that_cannot_run_says_so(setting: Setting) -> None:
    missing = setting.settings() | {"scenario": "missing.toml"}
    said: list[str] = []
    assert not setting.deployment.run(setting.app, missing, said.append)
    assert any("missing.toml" in line for line in said)


def test_a_job_through_all_kills_ends_as_in_one_process(setting: Setting, tmp_path: Path) -> None:
    deployment, folder, app = setting.deployment, setting.folder, setting.app
    said = list[str]()

    def kill_node_and_superlink() -> None:
        wait(lambda: setting.messages() >= 1)
        deployment.stop(HOUSE, kill=True)
        deployment.restart_node(HOUSE)
        wait(lambda: len(setting.rounds()) >= 1)
        deployment.kill("flwr-serverapp")
        deployment.stop(SUPERLINK, kill=True)
        deployment.kill("flwr")  # it would go on trying

    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(kill_node_and_superlink)
        assert not deployment.run(app, setting.settings(), said.append)
        killer.result()
    assert len(setting.rounds()) == 1, "\n".join(said)
    assert not any(isinstance(one, Settled) for one in setting.seen())
    deployment.start_superlink()
    wait(lambda: len(deployment.online()) == 2)
    deployment.stop(HOUSE, kill=True)
    wait(lambda: deployment.online() == [ALONE])
    said.clear()
    done = deployment.run(app, setting.settings(timeout=300.0, wait=20.0), said.append)
    assert done, "\n".join(said)
    assert deployment.log(ALONE).count("Receiving: query.quotes") == 2  # none was sent again
    asked = deployment.log(ALONE).count("Receiving: query.")
    assert 5 <= asked <= MOST_ASKED, "quotes, key, contract, contract signed, settlement"
    assert [one.result.delivered for one in setting.rounds()] == [(0, 1, 2), (0,)]

    here = tmp_path / "here"
    faults = [{"owner": name, "kind": "absent", "first": ROUNDS} for name in ("1", "2")]
    run_market(make_scenario(here, **SETTINGS), here, engine=cheating(faults)).finish()
    ours, theirs = told(folder), told(here)
    assert ours["0"] == theirs["0"]
    for name in ("1", "2"):
        assert ours[name][:3] == theirs[name][:3]  # it may have been charged before the kill
        assert [one.outcome for one in ours[name][3]] == ["delivered", "missed"]
    assert same_model(folder, here)
    assert charged(folder, "0") == [1, 2]
    assert all(charged(folder, name)[:1] == [1] for name in ("1", "2"))
    names = {path.name for path in (folder / "curator").iterdir()}
    assert names >= {"checkpoint.npz", "privacy.journal", "metrics.jsonl", "model.npz"}
    assert names >= {"events.jsonl", "traffic.json"}
