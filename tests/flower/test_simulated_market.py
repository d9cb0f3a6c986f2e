"""A market on Flower's own simulation runtime in which a worker of Ray is killed: the job goes on
by itself, and ends as in one process."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.flower.job_ends import charged, deals, weights
from tests.flower.market_common import MOST_ASKED, make_scenario

from noisemarket.errors import BadInput
from noisemarket.flower.deploy.deployment import Simulation
from noisemarket.flower.deploy.guard import MARK, marked_processes
from noisemarket.flower.deploy.single_machine import run_on_flower, runtime_of
from noisemarket.flower.host_files import CURATOR
from noisemarket.market.event_file import EVENTS, NEGOTIATING, from_line
from noisemarket.market.events import RoundTrained, Settled
from noisemarket.market.job import run_market
from noisemarket.market.preparation import prepare

WORKER = "ray::ClientAppActor"
ROUNDS = 8

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


def test_a_job_whose_worker_is_killed_goes_on_and_ends_as_in_one_process(tmp_path: Path) -> None:
    here, folder = tmp_path / "here", tmp_path / "run"
    more = {"owners": 4, "rounds": ROUNDS, "interactions_per_message": 200}
    run_market(make_scenario(here, **more), here, workers=1).finish()
    market = run_on_flower(
        prepare(make_scenario(folder, **more)), folder, runtime="simulation", show=print
    )
    said = list[str]()
    for event in market:
        said.append(type(event).__name__)
        if isinstance(event, RoundTrained) and event.result.number == 1 and "Again" not in said:
            said.append("Again")
            superlink = the_superlink(folder)
            database = Path(superlink.cmdline()[superlink.cmdline().index("--database") + 1])
            recorded = b"".join(one.read_bytes() for one in database.parent.glob("superlink.db*"))
            token = superlink.environ()[MARK]
            workers = [one for one in superlink.children(recursive=True) if is_worker(one)]
            assert workers
            for worker in workers:
                worker.kill()
    assert isinstance(event, Settled)
    assert said.count("Opened") == 2, "it was resumed"
    seen = map(from_line, (folder / "curator" / EVENTS).read_text().splitlines())
    game = sum(isinstance(one, dict) and one["kind"] == NEGOTIATING for one in seen)
    besides = len(["hello", "key", "contract", "signed", "settled"])
    assert 1 <= game <= MOST_ASKED - 2 * besides, "the game was not played again"
    assert deals(folder) == deals(here)
    assert np.allclose(weights(folder), weights(here), rtol=0, atol=1e-6)
    assert all(charged(folder, name) == [*range(1, ROUNDS + 1)] for name in "0123")
    assert b"scenario.toml" in recorded
    assert str(tmp_path).encode() not in recorded, "a path in what owners get"
    assert marked_processes(token) == []


def the_superlink(folder: Path) -> psutil.Process:
    """The SuperLink whose curator's folder is this one."""
    (found,) = (
        one
        for one in psutil.process_iter(["cmdline", "environ"])
        if "--simulation" in (one.info["cmdline"] or [])
        and (one.info["environ"] or {}).get(CURATOR) == str(folder.resolve())
    )
    return found


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[:1] != [] and process.cmdline()[0].startswith(WORKER)
    return False


def test_the_runtime_that_fits() -> None:
    assert [runtime_of(None, owners) for owners in (1, 10, 11, 1000)] == (
        ["deployment"] * 2 + ["simulation"] * 2
    )
    assert runtime_of("deployment", 50) == "deployment"
    with pytest.raises(BadInput, match="choose deployment or simulation"):
        runtime_of("cloud", 3)
    with pytest.raises(BadInput, match="at least one node"):
        Simulation([])
