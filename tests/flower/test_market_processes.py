"""A whole market over real Flower processes: a node killed in the game, SuperLink and ServerApp
between rounds; on a new deployment it goes on, to the contracts and the model of one process.

Slow only because Flower starts a process for every message.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.flower.market_common import NAMES, make_scenario

from noisemarket.flower.deploy.deployment import Deployment, NodeSetup
from noisemarket.flower.deploy.guard import marked
from noisemarket.flower.deploy.single_machine import deal_out, run_on_flower
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import prepare, run_market
from noisemarket.market.event_file import EVENTS, NEGOTIATING, from_line
from noisemarket.market.events import RoundTrained, Settled
from noisemarket.market.summary import summary
from noisemarket.owner.folder import OwnerFolder, owner_folder
from noisemarket.privacy.journal import read_journal

APP = Path(__file__).resolve().parents[2] / "examples" / "flower-market"

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def seen(folder: Path) -> list[object]:
    place = folder / "curator" / EVENTS
    return [from_line(line) for line in place.read_text().splitlines()] if place.exists() else []


def letters(folder: Path) -> int:
    return sum(isinstance(one, dict) and one["kind"] == NEGOTIATING for one in seen(folder))


def rounds(folder: Path) -> list[RoundTrained]:
    return [one for one in seen(folder) if isinstance(one, RoundTrained)]


def journal(folder: Path, name: str) -> list[int]:
    job = json.loads((folder / "market.json").read_text())["job"]
    place = OwnerFolder(name, owner_folder(folder / "owners", name)).journal(job)
    return [charge.round for charge in read_journal(place).charges]


def signed(folder: Path) -> dict[str, tuple[float, int, str]]:
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        return {
            one.contract.owner: (one.contract.sigma, one.contract.payment, one.state)
            for one in contracts(ledger)
        }


def test_a_market_through_kills_ends_as_in_one_process(tmp_path: Path) -> None:
    here, folder = tmp_path / "here", tmp_path / "run"
    expected = run_market(
        make_scenario(here, interactions_per_message=200), here, workers=1
    ).finish()
    scenario = make_scenario(folder, interactions_per_message=200)
    setups = deal_out(prepare(scenario), folder / "owners")
    nodes = [*setups, NodeSetup("mallory", dict(setups[0].config))]
    paths = {"scenario": str(folder / "scenario.toml"), "folder": str(folder)}
    settings = {**paths, "timeout": 150.0, "wait": 150.0}
    with Deployment(nodes, tmp_path / "deployment", register=NAMES) as deployment:
        token = deployment.processes.token

        def disturb() -> None:
            """Kill a node in the game, let it back in; kill the SuperLink after a round."""
            wait(lambda: letters(folder) >= 1)
            deployment.stop_node("1", kill=True)
            deployment.restart_node("1")
            wait(lambda: len(rounds(folder)) >= 1)
            deployment.stop_superlink(kill=True)

        helper = threading.Thread(target=disturb)
        helper.start()
        first = deployment.run(APP, settings)
        helper.join()
        assert not first.completed
        assert letters(folder) == 2
        assert len(rounds(folder)) == 1
        assert not any(isinstance(one, Settled) for one in seen(folder))
    assert marked(token) == []

    # Everything is new but the folders: SuperLink, SuperNodes, their keys and numbers.
    market = run_on_flower(prepare(scenario), folder)
    assert isinstance(list(market)[-1], Settled)
    assert letters(folder) == 2  # no letter was sent again
    assert signed(folder) == signed(here)
    assert all(state == "paid" for _, _, state in signed(folder).values())
    ours, theirs = (
        {k: v for k, v in summary(one).items() if k not in ("seconds", "ledger_head")}
        for one in (market.outcome, expected)
    )
    assert ours == theirs
    assert [one.owner for one in market.outcome.statements] == NAMES
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        verify(ledger)
    with (
        np.load(folder / "curator" / "model.npz") as model,
        np.load(here / "curator" / "model.npz") as embedded,
    ):
        assert np.allclose(model["weights"], embedded["weights"], rtol=0, atol=1e-6)
    assert all(journal(folder, name) == [1, 2] for name in NAMES)


def wait(until: object, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    assert callable(until)
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)
