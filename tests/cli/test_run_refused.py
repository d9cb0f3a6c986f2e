"""``noisemarket run`` refuses what it cannot do, in one sentence, before it leaves anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.small_jobs import fails, run_words
from tests.market.common import write_images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--set", "colour=red"], "colour"),
        (["--set", "rho_budget=1"], "privacy.rho_budget is 1: it is kept in owners' wallets"),
        (["--set", "epsilon_budget=2"], "add --owners-folder, or give epsilon_cap"),
        (["--set", "market.colour=red"], "colour"),
        (["--set", "market.budget=-1"], "market.budget"),
        (["--set", "market.budget=lots"], "market.budget"),
        (["--budget", "-1"], "market.budget is -1"),
        (["--budget", "nan"], "market.budget is nan"),
        (["--budget", "lots"], "market.budget is lots"),
        (["--target-accuracy", "101"], "market.target_accuracy is 101"),
        (["--target-accuracy", "90"], "--target-accuracy is 90: equilibrium buys from each owner"),
        (["--set", "false_alarm=0"], "market.false_alarm"),
        (["--set", "ledger=mysql://x/y"], "market.ledger is mysql://x/y: give a URL that begins"),
        (["--set", "ledger=x.sqlite"], "market.ledger is x.sqlite: give a URL that begins"),
        (["--set", "ledger=postgresql://h:port/db"], "give a URL that begins with postgresql://"),
        (["--set", "ledger=postgresql://u:h0rse@h/db"], "~/.pgpass, PGPASSFILE or PGPASSWORD"),
        (["--set", "ledger=postgresql://h/db?password=h0rse"], "PGPASSFILE"),
        (["--set", "ledger=postgresql://u:h0rse@h:port/db"], "market.ledger is the URL"),
        (["--set", "network=none"], "training.network"),
        (["--workers", "0"], "--workers"),
        (["--preset", "other"], "preset"),
        (["--preset", "markt"], "preset is markt: did you mean market? If not, choose one of"),
        (["--mechanism", "nobody"], "nobody"),
        (["nothing.toml"], "nothing.toml"),
        (["--set", "owners=13"], "120 records suffice for 12 owners"),
        (["--set", "data=nowhere"], "nowhere"),
        (["--set", "rho_cap=1e-9"], "does not allow one round"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(
    images: Path, more: list[str], said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    sentence = fails([*run_words(images), "--out", "r", *more], capsys)
    assert said in sentence
    assert "h0rse" not in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_job_of_a_season_is_not_resumed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "jobs" / "02"
    job.mkdir(parents=True)
    for file in (tmp_path / "season.json", job / "scenario.toml", job / "status.json"):
        file.touch()
    monkeypatch.chdir(job.parent)
    said = fails(["run", "--resume", "02"], capsys)
    assert f"--resume 02 is one job of a season: resume {tmp_path}" in said


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["ledger=postgresql://nobody@127.0.0.1:1/none"], 1, "Connection refused"),
    ],
)
def test_what_is_found_later_is_one_sentence_too(
    images: Path, more: list[str], code: int, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = [*run_words(images), *(word for one in more for word in ("--set", one)), "--out", "r"]
    assert said in fails(given, capsys, code)
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"
    assert not list(tmp_path.rglob("contract.json"))


def test_a_folder_without_owners_is_refused_before_a_surface_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.csv").write_text("age,label\n1,a\n9,b\n")
    (tmp_path / "data" / "columns.toml").write_text(
        '[label]\ncolumn = "label"\nclasses = ["a", "b"]\n'
        '[columns.age]\nkind = "number"\nlow = 0\nhigh = 9\nbins = 2\n'
    )
    said = fails(["run", "--set", "data=data", "--out", "r"], capsys)
    assert "has no owner's records: put a file per owner there, or run over Flower." in said
    assert "Measuring" not in said
    assert not (tmp_path / "r").exists()


@pytest.mark.process
@pytest.mark.training
def test_a_stop_while_the_surface_is_measured_says_that_nothing_is_kept(tmp_path: Path) -> None:
    words = ["run", "--set", "owners=20", "--set", "rounds=400", "--out", "r"]
    surfaces = {**os.environ, "NOISEMARKET_SURFACES": str(tmp_path / "surfaces")}
    with subprocess.Popen(
        [sys.executable, "-m", "noisemarket", *words],
        cwd=tmp_path, env=surfaces, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        assert run.stderr.readline().startswith("Measuring the loss surface")
        run.send_signal(signal.SIGINT)
        assert "nothing is kept: start it again" in run.stderr.read()
    assert run.returncode == 130
    assert not (tmp_path / "r").exists()


def test_a_folder_that_is_taken_is_refused_before_a_surface_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOISEMARKET_SURFACES", str(tmp_path / "surfaces"))
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    for command in (["run"], ["negotiate"], ["compare"], ["compare", "--game-only"]):
        words = [*command, "--set", "owners=20", "--set", "rounds=300"]
        assert "not a run folder" in fails([*words, "--out", str(tmp_path / "taken")], capsys)
        within = str(tmp_path / "taken" / "r")
        assert "r cannot be written (File exists)" in fails([*words, "--out", within], capsys)
        too_long = str(tmp_path / ("r" * 300))
        assert "cannot be written (File name too long)" in fails(
            [*words, "--out", too_long], capsys
        )
    assert not (tmp_path / "surfaces").exists()
