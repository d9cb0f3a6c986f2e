"""The server as a process: states, clients that vanish, runs that outlive it."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.commands import PATIENCE, assert_sentence, call, command
from tests.market.common import words, write_images
from tests.show.dashboard.served import Served, bearer, process_of

from noisemarket.show.dashboard.launcher import Launcher, TooManyRuns, WrongState
from noisemarket.show.dashboard.run_store import RunStore

pytestmark = pytest.mark.process

ROUNDS = 60
SMALL = {"population.owners": 3, "training.rounds": ROUNDS}


@pytest.fixture(scope="module")
def served(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("server") / "runs"
    shutil.copytree(runs, root)
    one = Served(root, "--most-runs", "1")
    yield one
    one.stop()


def connect(served: Served) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(served.address.split("/")[2], timeout=PATIENCE)


def ask(served: Served, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = connect(served)
    headers = {"content-type": "application/json", **bearer()}
    connection.request(method, f"/api/{path}", json.dumps(body or {}), headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def states(served: Served, run: str) -> Iterator[dict[str, Any]]:
    """How a run stands, as a page asks for it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status, seen = ask(served, "GET", f"runs/{run}/state")
        assert status == 200
        yield seen
        time.sleep(0.1)


def until(served: Served, run: str, state: str) -> dict[str, Any]:
    return next(seen for seen in states(served, run) if seen["state"] == state)


def test_a_run_outlives_its_viewers_and_its_server(served: Served) -> None:
    """One run at a time; viewers come and vanish; the server is killed; the run is resumed."""
    status, started = ask(served, "POST", "runs", {"name": "long", "settings": SMALL, "draws": 0})
    assert (status, started) == (201, {"name": "long", "begun": True})
    assert next(seen["round"] for seen in states(served, "long") if seen["round"] > 0)
    run = process_of(served.root / "long")
    run.suspend()
    status, refused = ask(served, "POST", "runs", {"name": "second", "settings": SMALL})
    assert status == 429
    assert "As many runs as may (1) are going on" in refused["problem"]
    with ThreadPoolExecutor(20) as pool:
        seen = [*pool.map(lambda _: ask(served, "GET", "runs/long/state")[1], range(20))]
    done = max(one["round"] for one in seen)
    run.resume()
    assert next(seen["round"] for seen in states(served, "long") if seen["round"] > done)
    run.suspend()
    served.stop(kill=True)
    assert run.is_running()
    served.start()
    assert ask(served, "GET", "runs/long")[1]["state"] == "running"
    assert ask(served, "POST", "runs/long/resume")[0] == 409
    assert ask(served, "POST", "runs/long/stop")[0] == 202
    run.resume()
    stopped = until(served, "long", "incomplete")
    assert 0 < stopped["round"] < ROUNDS
    assert "stopped" in stopped["problem"].casefold()
    assert ask(served, "POST", "runs/long/stop")[0] == 409
    assert ask(served, "POST", "runs/long/resume")[0] == 202
    whole = until(served, "long", "complete")
    assert whole["round"] == ROUNDS
    assert whole["accuracy"][0]["round"][-1] == ROUNDS
    assert ask(served, "GET", "runs/long/ledger")[1]["sound"]


HOLD = """
import sys, time
from pathlib import Path
from noisemarket.market.run_folder import RunFolder
with RunFolder.create(sys.argv[1], "held"):
    print("held", flush=True)
    time.sleep(300)
"""


def test_nobody_elses_process_is_stopped(tmp_path: Path) -> None:
    """A folder that was copied names the process of the other one; one from elsewhere, anybody."""
    store, held = RunStore(tmp_path / "runs"), tmp_path / "runs" / "held"
    launcher = Launcher(store, most=2)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(held)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    shutil.copytree(held, store.root / "copied")
    status = json.loads((held / "status.json").read_text())
    for name, change in {
        "elsewhere": {"host": "another-machine"},
        "again": {"began": status["process"]["began"] - 60.0},
        "negative": {"id": -1},
    }.items():
        (store.root / name).mkdir()
        said = status | {"process": status["process"] | change}
        (store.root / name / "status.json").write_text(json.dumps(said))
    for name in ("copied", "elsewhere", "again", "negative"):
        with pytest.raises(WrongState):
            launcher.stop(name)
    assert process.poll() is None
    launcher._make_room()  # one process, whatever the copies say
    with pytest.raises(TooManyRuns, match=r"may \(1\)"):
        Launcher(store, most=1)._make_room()
    launcher.stop("held")
    assert process.wait(PATIENCE) == -signal.SIGTERM
    process.stdout.close()


def test_a_run_of_the_command_line_is_watched(served: Served, tmp_path: Path) -> None:
    given = words(write_images(tmp_path), rounds=8)
    run = subprocess.Popen(
        command(*given, "--workers", "1", "--out", str(served.root / "by-hand")),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + PATIENCE
    while ask(served, "GET", "runs/by-hand")[0] == 404:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert until(served, "by-hand", "complete")["round"] == 8
    assert run.wait(PATIENCE) == 0


def test_what_the_command_refuses_is_refused_with_its_sentence(served: Served) -> None:
    # Only the mechanism knows that this is too much.
    order = {"settings": {"mechanism": "clock", "market.floor": 0.7}}
    status, said = ask(served, "POST", "runs", order)
    assert status == 422
    assert "sellers keep less than sigma_max" in said["problem"]
    for settings in ({"population.file": "/etc/passwd"}, {"training.data": "/"}, {"seed": -1}):
        status, said = ask(served, "POST", "runs", {"settings": settings})
        assert status == 422, said
    assert ask(served, "POST", "runs", {"name": "../up"})[0] == 422
    assert not list(served.root.parent.glob("up*"))


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "status.json").write_text("{}")
    done = call("dashboard", "one", "--no-open", cwd=tmp_path)
    assert done.returncode == 2
    assert_sentence(done.stderr)
    assert "is a run folder" in done.stderr


def test_without_the_extra_the_command_names_it(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['uvicorn'] = None; from noisemarket.cli import main; "
    code = hide + "main(['dashboard', '--no-open'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "noisemarket[dashboard]" in done.stderr
