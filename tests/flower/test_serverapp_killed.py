"""Real processes: a ServerApp killed between rounds while the SuperLink lives, and a SuperNode
killed in a round. The ledger ends as that of a market that nobody disturbed.

What came before the kill is played in this process, over Flower's own objects: it is quicker.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from tests.flower.market_common import grid_of, make_scenario
from tests.flower.test_market_processes import rounds, wait

from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.deploy.deployment import SUPERLINK, Deployment
from noisemarket.flower.deploy.guard import marked
from noisemarket.flower.deploy.single_machine import deal_out
from noisemarket.flower.line import Bounds
from noisemarket.ledger.queries import account, contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import prepare

APP = Path(__file__).resolve().parents[2] / "examples" / "flower-market"
SETTINGS: dict[str, Any] = {"owners": 2, "rounds": 3, "interactions_per_message": 400}

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


class Stopped(Exception):
    pass


def failing() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise RuntimeError

    return app


def undisturbed(folder: Path) -> None:
    """The whole market in this process; the second owner answers nothing in the last round."""
    scenario = make_scenario(folder, **SETTINGS)
    grid = grid_of(scenario, folder)

    def show(line: str) -> None:
        if line.startswith("Round 2 of 3"):
            grid.nodes[101].app = failing()

    hold_market(grid, scenario, folder, show, Bounds(5.0, wait=1.0))


def first_round(folder: Path) -> None:
    """The market up to its first round, in this process."""
    scenario = make_scenario(folder, **SETTINGS)

    def show(line: str) -> None:
        if line.startswith("Round 1 of 3"):
            raise Stopped

    with pytest.raises(Stopped):
        hold_market(grid_of(scenario, folder), scenario, folder, show, Bounds(5.0, wait=1.0))


def kill(deployment: Deployment, program: str) -> None:
    """As a crash would: the one process of the deployment that runs this program."""
    found = []
    for process in marked(deployment.processes.token):
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
        if any(Path(word).name == program for word in words[:2]):
            found.append(process)
    (process,) = found
    process.kill()


def told(folder: Path) -> dict[str, Any]:
    """All that the ledger says, but for names and times."""
    out = {}
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        verify(ledger)
        for one in contracts(ledger):
            terms = one.contract.sigma, one.contract.payment, one.contract.rho_cap
            out[one.contract.owner] = terms, one.state, one.paid, account(
                ledger, one.contract.id
            ).rounds  # fmt: skip
    return out


def test_a_killed_serverapp_and_a_killed_node_leave_the_ledger_right(tmp_path: Path) -> None:
    here, folder = tmp_path / "here", tmp_path / "run"
    undisturbed(here)
    first_round(folder)
    scenario = make_scenario(folder, **SETTINGS)
    setups = deal_out(prepare(scenario), folder / "owners")
    paths = {"scenario": str(folder / "scenario.toml"), "folder": str(folder)}
    settings = {**paths, "timeout": 120.0, "wait": 60.0}
    with Deployment(setups, tmp_path / "deployment") as deployment:
        superlink = deployment.processes.pid(SUPERLINK)

        def kill_serverapp() -> None:
            wait(lambda: len(rounds(folder)) >= 2)
            kill(deployment, "flwr-serverapp")
            kill(deployment, "flwr")  # it would wait for the SuperLink to notice

        def kill_node(run: str) -> None:
            wait(lambda: f"[RUN {run}, ROUND 3]" in deployment.log("1").read_text())
            deployment.stop_node("1", kill=True)

        def look(line: str) -> None:
            if found := re.search(r"started run (\d+)", line):
                killers.append(pool.submit(kill_node, found[1]))

        with ThreadPoolExecutor(1) as pool:
            killers = [pool.submit(kill_serverapp)]
            assert not deployment.run(APP, settings).completed
            killers.pop().result()
            assert len(rounds(folder)) == 2
            assert deployment.processes.alive(SUPERLINK)
            assert deployment.run(APP, settings | {"grace": 15.0}, show=look).completed
            killers.pop().result()
        assert deployment.processes.pid(SUPERLINK) == superlink
    assert told(folder) == told(here)
    outcomes = {name: [one.outcome for one in entry[3]] for name, entry in told(folder).items()}
    assert outcomes == {"0": ["delivered"] * 3, "1": ["delivered", "delivered", "missed"]}
    with (
        np.load(folder / "curator" / "model.npz") as model,
        np.load(here / "curator" / "model.npz") as expected,
    ):
        assert np.allclose(model["weights"], expected["weights"], rtol=0, atol=1e-6)
