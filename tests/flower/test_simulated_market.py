"""A market over Flower's simulation: begun elsewhere, through the death of a worker; a stop."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.commands import PATIENCE, command, has_lines, wait_until
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.job_ends import charged, same_model, told
from tests.flower.market_common import grid_of, make_scenario

from noisemarket.errors import BadInput, Interrupted, MissingExtra
from noisemarket.flower import simulation
from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.owner_app import owner_app
from noisemarket.flower.simulation import run_simulation
from noisemarket.market.events import Opened, RoundTrained, Settled
from noisemarket.market.job import run_market
from noisemarket.market.orders import prepare
from noisemarket.market.outcome import MarketRun
from noisemarket.market.summary import summary

NAMES = ["0", "1"]
ROUNDS = 6
SETTINGS: dict[str, Any] = {"owners": 2, "rounds": ROUNDS, "interactions_per_message": 200}
WORKER = "ray::ClientAppActor"

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # Ray's files
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What Ray has left open is closed while its warnings are ignored."""
    yield
    gc.collect()


class Stopped(Exception):
    pass


def test_a_job_that_loses_a_worker_ends_as_in_one_process(tmp_path: Path) -> None:
    """It begins over a grid in this process and goes on in the simulation; a worker dies."""
    here, folder = tmp_path / "here", tmp_path / "run"
    expected = run_market(make_scenario(here, **SETTINGS), here, workers=1).finish()
    scenario = make_scenario(folder, **SETTINGS)

    def stop_after_one(line: str) -> None:
        if line.startswith("Round 1 of"):
            raise Stopped

    with pytest.raises(Stopped):
        hold_market(
            grid_of(scenario, folder),
            scenario,
            folder,
            stop_after_one,
            Bounds(5.0, wait=1.0, simulated=True),
        )

    before = dict(os.environ)
    run, opened, killed = run_simulation(prepare(scenario), folder, workers=1), 0, 0
    for event in run:
        opened += isinstance(event, Opened)
        if isinstance(event, RoundTrained) and not killed:
            for worker in workers():
                worker.kill()
                killed += 1
    assert isinstance(event, Settled)
    assert (opened, killed) == (2, 1)
    assert told(folder) == told(here)
    ours, theirs = (
        {
            k: v
            for k, v in summary(one, one.negotiation.environment).items()
            if k not in ("seconds", "ledger_head")
        }
        for one in (run.outcome, expected)
    )
    assert ours == theirs
    assert [one.owner for one in run.outcome.statements] == NAMES
    assert same_model(folder, here)
    assert all(charged(folder, name) == [*range(1, ROUNDS + 1)] for name in NAMES)
    assert os.environ == before
    assert workers() == []


def test_a_job_is_stopped_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a grid in this process: a second start of Ray would show nothing more."""
    folder, rounds, stops = tmp_path / "run", list[int](), list[bool]()
    scenario = make_scenario(folder, **SETTINGS)

    def simulate(configs: Any, curator: Any, count: int) -> None:
        nodes = {100 + n: Node(owner_app(), dict(one)) for n, one in enumerate(configs)}
        curator(ProcessGrid(nodes))

    monkeypatch.setattr(simulation, "simulate", simulate)

    def take(run: MarketRun) -> None:
        for event in run:
            if isinstance(event, RoundTrained):
                rounds.append(event.result.number)
                stops.append(True)

    with pytest.raises(Interrupted):
        take(run_simulation(prepare(scenario), folder, stop=lambda: bool(stops)))
    assert 1 <= max(rounds) < ROUNDS
    take(run_simulation(prepare(scenario), folder))
    assert rounds == [*range(1, ROUNDS + 1)]


def test_sigterm_stops_the_command_after_a_round(tmp_path: Path) -> None:
    """Ray takes the signal for itself when it starts, and would end the process with a trace."""
    make_scenario(tmp_path / "job", **SETTINGS | {"rounds": 500})
    words = command(
        "run", "job/scenario.toml", "--engine", "flower", "--workers", "1", "--no-baselines",
        "--out", "run",
    )  # fmt: skip
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: has_lines(tmp_path / "run" / "curator" / "metrics.jsonl", 2), process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130, said
    assert said.splitlines()[-1].endswith("continue with --resume run.")
    assert "SIGTERM" not in said, "a trace of Ray"


def workers() -> list[psutil.Process]:
    """The workers of Ray that this process has."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "".join(process.cmdline()[:1]).startswith(WORKER):
                found.append(process)
    return found


def test_what_cannot_run_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario(tmp_path / "run")
    other = scenario.model_copy(update={"mechanism": "equilibrium"})
    with pytest.raises(BadInput, match="needs the private numbers of all owners"):
        run_simulation(prepare(other), tmp_path / "job")
    monkeypatch.setattr(simulation, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"noisemarket\[flower\]"):
        run_simulation(prepare(scenario), tmp_path / "job")
    assert not (tmp_path / "job").exists()
