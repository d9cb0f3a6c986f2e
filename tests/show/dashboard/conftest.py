"""Run folders to look at, made once, one of each kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from tests import conftest
from tests.commands import call_here
from tests.market.common import here, words, write_images
from tests.show.dashboard.asgi import Client

from noisemarket.show.dashboard.run_store import RunStore
from noisemarket.show.dashboard.web_app import web_app

TINY = ("--seeds", "2", "--set", "owners=2", "--set", "iterations=200", "--workers", "1")
GAME = ("--set", "owners=4", "--set", "iterations=400", "--set", "model=cnn")


@pytest.fixture(scope="session")
def runs(shared: Path) -> Path:
    """A folder with a market of three owners, one of them broken; a game; a comparison; a season of
    two jobs; and a reproduction.

    For all workers of pytest-xdist: the first that needs it makes it.
    """
    place = shared / "dashboard"
    with FileLock(f"{place}.lock"):
        if not (place / "made").exists():
            with pytest.MonkeyPatch.context() as patch:
                conftest.leave_undrawn(patch)  # the dashboard draws its own
                cheat = partial(here, faults=[{"owner": "2", "kind": "zeros"}])
                patch.setattr("noisemarket.market.job.run_market", cheat)
                _make_runs(place)
            (place / "made").touch()
    return place / "runs"


def _make_runs(place: Path) -> None:
    root, folder = place / "runs", place / "images"
    folder.mkdir(parents=True)
    images = write_images(folder)
    given = words(images, noise="secure", mechanism="equilibrium", currency="EUR")
    jobs = place / "season.toml"
    jobs.write_text('[[jobs]]\nname = "spring"\n[[jobs]]\nname = "fall"\n')
    for name, made in {
        "market": given,
        "game": ["negotiate", "--mechanism", "dypp", *GAME],
        "season": [
            "run",
            str(jobs),
            *words(images, model="features", currency="EUR")[1:],
            "--workers",
            "1",
        ],
        "reproduction": ["reproduce", *TINY],
        "compared": ["compare", "--game-only", "--mechanisms", "uniform,clock,equilibrium", *GAME],
    }.items():
        done = call_here(*made, "--out", str(root / name), cwd=place)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def client(runs: Path) -> Client:
    return Client(web_app(RunStore(runs)))


Get = Callable[..., Any]


@pytest.fixture
def get(client: Client) -> Get:
    def ask(path: str, **query: Any) -> Any:
        answer = client.get(f"/api/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask
