"""What a run writes about its owners: private where it holds costs, and safe in a spreadsheet."""

import csv
import stat
import sys
from pathlib import Path

import pytest
from tests.commands import Done, call_here
from tests.market.common import here as run_here
from tests.market.common import words, write_images

from noisemarket.formats import text_of

pytestmark = pytest.mark.training

NAMES = ["=1+1", "a, b", "plain"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("owners")
    write_images(folder)
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["owner", "privacy_cost", "data_size", "beta", "markup"]]
            + [[name, 2.5 + i, 40, 1, 0.2] for i, name in enumerate(NAMES)]
        )
    return folder


@pytest.fixture(scope="module")
def done(place: Path) -> Done:
    """A small market, whose worker is this process."""
    given = words(place, rounds=1, model="features")
    given = [one.replace("owners=3", 'file="people.csv"') for one in given]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noisemarket.market.job.run_market", run_here)
        ended = call_here(*given, "--out", "r", cwd=place)
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.mark.usefixtures("undrawn")
@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_what_holds_costs_is_for_its_user_alone(place: Path, done: Done) -> None:
    assert mode(place / "r" / "owners.csv") == 0o600
    assert mode(place / "r" / "scenario.toml") & 0o044 == 0o044 & ~_umask()
    game = ["--mechanism", "uniform", "--set", "file=people.csv", "--out", "n"]
    ended = call_here("negotiate", *game, cwd=place)
    assert ended.returncode == 0, ended.stderr
    assert mode(place / "n" / "owners.csv") == mode(place / "n" / "contracts.csv") == 0o600


def test_no_owner_is_a_formula(place: Path, done: Done) -> None:
    ended = call_here("ledger", "export", "r", "--csv", "out.csv", cwd=place)
    assert ended.returncode == 0, ended.stderr
    for file in ("r/contracts.csv", "out.csv"):
        with (place / file).open(newline="") as lines:
            owners = [row["owner"] for row in csv.DictReader(lines)]
        assert sorted(map(text_of, owners)) == sorted(NAMES)
        assert "'=1+1" in owners


def _umask() -> int:
    import os

    before = os.umask(0)
    os.umask(before)
    return before
