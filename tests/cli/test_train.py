"""``noisemarket train`` as a user meets it, on a few images of MNIST: processes and kills."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.small_jobs import TRAINED, train_words
from tests.commands import (
    PATIENCE,
    assert_sentence,
    call,
    call_here,
    command,
    has_lines,
    wait_until,
)
from tests.tiny_images import write_images

from noisemarket.cli import main
from noisemarket.privacy.accountant import JournalledAccountant

pytestmark = pytest.mark.process

ROUNDS = TRAINED
WHOLE = ("averaging=0.5", "protection=sharded", "records_per_shard=2", "shard_steps=200")
"""Of the run that is killed: its rounds take a quarter of a second, so there is time to."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first images of MNIST, in a folder of idx files."""
    return write_images(tmp_path_factory.mktemp("mnist"), 400, 200)


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def weights(folder: Path) -> tuple[bytes, bytes]:
    with np.load(folder / "model.npz") as model:
        return model["weights"].tobytes(), model["averaged"].tobytes()


@pytest.fixture(scope="module")
def whole(images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run from start to end, with one worker."""
    folder = tmp_path_factory.mktemp("runs")
    run = [*train_words(images, *WHOLE), "--sigma", "0.1", "--workers", "1", "--json"]
    done = call(*run, "--out", "whole", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "whole", json.loads(done.stdout)


def test_a_run_leaves_everything_in_its_folder(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = whole
    assert {path.name for path in folder.iterdir()} == {
        "scenario.toml", "contracts.csv", "metrics.jsonl", "checkpoint.npz", "privacy.journal",
        "summary.json", "statements.json", "status.json", "model.npz", "figures",
    }  # fmt: skip
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.{ending}" for name in ("training", "partition") for ending in ("png", "svg")
    }
    assert json.loads((folder / "summary.json").read_text()) == summary
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "complete"
    assert status["rounds_done"] == ROUNDS
    assert status["secure_noise"] is False
    lines = metrics(folder)
    assert [line["number"] for line in lines] == list(range(1, ROUNDS + 1))
    assert summary["accuracy_per_round"] == [line["score"]["accuracy"] for line in lines]
    assert summary["accuracy"] == lines[-1]["score"]["accuracy"]
    assert summary["averaged_accuracy"] == lines[-1]["averaged"]["accuracy"]
    assert summary["loss"] == lines[-1]["score"]["loss"] > 0
    assert summary["complete"]
    for name in ("rho", "epsilon"):
        assert list(summary[name]) == ["min", "median", "max"]
        assert 0 < summary[name]["min"] <= summary[name]["median"] <= summary[name]["max"]
    # rho = 2 clip^2 / (shards^2 sigma^2) a round, with half of 100 records
    assert summary["rho"]["max"] == pytest.approx(ROUNDS * 2 / (50 * 0.1) ** 2, rel=1e-2)
    contracts = (folder / "contracts.csv").read_text().splitlines()
    assert contracts[0] == "owner,sigma"
    assert len(contracts) == 5


def test_simulated_noise_is_called_by_its_name(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = whole
    statements = json.loads((folder / "statements.json").read_text())
    assert len(statements) == 4
    for one in statements:
        assert "NOT PRIVATE" in one["text"]
        assert not one["guaranteed"]
        assert one["rounds"] == one["releases"] == ROUNDS
    assert summary["secure_noise"] is False
    assert summary["guaranteed"] is False


def test_killed_and_resumed_with_other_workers_gives_the_same_bits(
    images: Path, whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = [*train_words(images, *WHOLE), "--sigma", "0.1", "--workers", "2", "--out", "cut"]
    folder = tmp_path / "cut"
    with subprocess.Popen(command(*run), cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: has_lines(folder / "metrics.jsonl", 2), process)
        process.send_signal(signal.SIGKILL)
    assert not (folder / "summary.json").exists()
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    text = (changed / "scenario.toml").read_text()
    (changed / "scenario.toml").write_text(text.replace('shard_rate = "auto"', "shard_rate = 0.3"))
    refused = call_here("train", "--resume", "changed", cwd=tmp_path)
    assert refused.returncode == 2
    assert_sentence(refused.stderr)
    assert "another scenario" in refused.stderr
    done = call_here("train", "--resume", "cut", "--workers", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert weights(folder) == weights(whole[0])
    assert metrics(folder) == metrics(whole[0])
    assert json.loads(done.stdout) == whole[1]
    assert json.loads((folder / "status.json").read_text())["state"] == "complete"


@pytest.mark.usefixtures("undrawn")
def test_killed_between_checkpoint_and_metrics(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The checkpoint has the round, the last line of the metrics never came to the disk."""
    folder = tmp_path / "cut"
    shutil.copytree(whole[0], folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[: ROUNDS - 1]))
    done = call_here("train", "--resume", "cut", "--workers", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == whole[1]
    assert weights(folder) == weights(whole[0])
    assert metrics(folder) == metrics(whole[0])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit_scenario(folder: Path) -> None:
    text = (folder / "scenario.toml").read_text()
    assert 'shard_rate = "auto"' in text
    (folder / "scenario.toml").write_text(text.replace('shard_rate = "auto"', "shard_rate = 0.3"))


def drop_last_charges(folder: Path) -> None:
    lines = (folder / "privacy.journal").read_bytes().splitlines(keepends=True)
    (folder / "privacy.journal").write_bytes(b"".join(lines[:-1]))


def cut_metrics(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("")


@pytest.mark.parametrize(
    ("harm", "busy", "more", "said"),
    [
        (edit_scenario, False, [], "checkpoint.npz belongs to another scenario"),
        (drop_last_charges, False, [], f"privacy.journal lacks the charges of round {ROUNDS}"),
        (cut_metrics, True, [], "privacy.journal is in use by another job"),
        (cut_metrics, False, ["--sigma", "0.2"], "with it, give only --workers and --json"),
        (cut_metrics, False, ["--seed", "1"], "with it, give only"),
        (cut_metrics, False, ["--contracts", "c.csv"], "with it, give only"),
        (cut_metrics, False, ["--overwrite"], "with it, give only"),
        (cut_metrics, False, ["--out", "other"], "with it, give only"),
        (cut_metrics, False, ["--set", "rounds=9"], "with it, give only"),
    ],
)
def test_what_cannot_be_resumed_stays_as_it_was(
    whole: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    harm: Callable[[Path], None],
    busy: bool,
    more: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(whole[0], tmp_path / "r")
    harm(tmp_path / "r")
    before = contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    if busy:
        with JournalledAccountant(tmp_path / "r" / "privacy.journal"):
            done = call("train", "--resume", "r", *more, cwd=tmp_path)
        code, problem = done.returncode, done.stderr
    else:
        with pytest.raises(SystemExit) as end:
            main(["train", "--resume", "r", *more])
        code, problem = int(str(end.value.code)), capsys.readouterr().err
    assert code == 2
    assert_sentence(problem)
    assert said in problem
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("undrawn")
def test_budgets_spent_before_a_round_was_done(images: Path, tmp_path: Path) -> None:
    cost = 2 / (100 * 0.1) ** 2  # an owner has 100 records
    run = [
        *train_words(images, "noise=secure", f"rho_cap={1.5 * cost}", rounds=2),
        "--sigma",
        "0.1",
    ]
    assert call_here(*run, "--workers", "1", "--out", "r", cwd=tmp_path).returncode == 0
    (tmp_path / "r" / "checkpoint.npz").unlink()  # as if killed in the first round
    done = call_here("train", "--resume", "r", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "The privacy budgets were used up after 0 of 2 rounds." in done.stdout
    again = call_here("train", "--resume", "r", "--workers", "1", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["accuracy"] is None


@pytest.mark.usefixtures("undrawn")
def test_a_loss_that_is_not_finite_is_null(images: Path, tmp_path: Path) -> None:
    settings = ("server_rate=1e30", "averaging=0.5", "normalise=false")
    run = [*train_words(images, *settings, rounds=2), "--preset", "paper", "--sigma", "0.1"]
    done = call_here(*run, "--workers", "1", "--out", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(done.stdout, parse_constant=refuse)["loss"] is None
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    read = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [line["score"]["loss"] for line in read] == [None, None]
    assert [line["refused"] for line in read] == [[], [[i, "not finite"] for i in range(4)]]
    again = call_here("train", "--resume", "r", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "inf" in again.stdout


def children(pid: int) -> set[int]:
    """All processes below one, by what each says of its parent."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                parents[int(stat.parent.name)] = int(parent)
    found, before = {pid}, 0
    while len(found) > before:
        before = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def stopped(words: list[str], folder: Path, lines: int, number: signal.Signals) -> str:
    """Run a command, stop it when its journal has that many lines, and return what it says.

    The command runs as a shell runs it: Ctrl-C reaches the whole group of processes.
    """
    with subprocess.Popen(
        command(*words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        wait_until(lambda: has_lines(folder / "r" / "privacy.journal", lines), process)
        below = children(process.pid)
        assert len(below) >= 2
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert out == ""
    assert "Traceback" not in said
    end = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < end, "a process outlives the command"
        time.sleep(0.1)
    return said


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_round_is_cut_off_at_once_charged_and_repeated(images: Path, tmp_path: Path) -> None:
    """A round of these would take a minute."""
    given = train_words(images, "shard_steps=10000", "noise=secure", rounds=2)
    run = [*given, "--sigma", "0.1", "--workers", "2", "--out", "r"]
    for lines, number in ((2, signal.SIGINT), (3, signal.SIGTERM)):
        said = stopped(run, tmp_path, lines, number)
        assert "stopped after 0 of 2 rounds; continue with --resume r." in said
        status = json.loads((tmp_path / "r" / "status.json").read_text())
        assert (status["state"], status["rounds_done"]) == ("incomplete", 0)
        for one in json.loads((tmp_path / "r" / "statements.json").read_text()):
            assert (one["rounds"], one["releases"]) == (1, lines - 1)
        assert metrics(tmp_path / "r") == []
        run = ["train", "--resume", "r", "--workers", "2"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_in_mid_training_is_one_sentence(images: Path, tmp_path: Path) -> None:
    given = train_words(images, "shard_steps=500", rounds=2)
    run = [*given, "--sigma", "0.1", "--workers", "1", "--out", "r"]
    with subprocess.Popen(
        command(*run), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until((tmp_path / "r" / "checkpoint.npz").exists, process, 0.002)
        (tmp_path / "full").symlink_to("/dev/full")
        (tmp_path / "full").replace(tmp_path / "r" / "checkpoint.npz")
        out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert out == ""
    assert_sentence(said)
    assert "checkpoint.npz cannot be written: No space left" in said
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"
    (tmp_path / "r" / "checkpoint.npz").unlink()
    (tmp_path / "r" / "model.npz").symlink_to("/dev/full")
    again = call_here("train", "--resume", "r", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 1
    assert_sentence(again.stderr)
    assert "model.npz cannot be written: No space left" in again.stderr
    (tmp_path / "r" / "model.npz").unlink()
    done = call_here("train", "--resume", "r", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, "now there is room"
    assert (tmp_path / "r" / "model.npz").is_file()


@pytest.mark.usefixtures("undrawn")
def test_a_cap_ends_training_and_is_shown(images: Path, tmp_path: Path) -> None:
    cost = 2 / (100 * 0.1) ** 2  # an owner has 100 records
    run = [*train_words(images, f"rho_cap={2.5 * cost}"), "--sigma", "0.1", "--workers", "1"]
    done = call_here(*run, "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 owners have used it up." in done.stdout
    assert f"The privacy budgets were used up after 2 of {ROUNDS} rounds." in done.stdout
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert (summary["complete"], summary["rounds"], summary["owners_at_cap"]) == (True, 2, 4)
    assert summary["rho"]["max"] <= summary["rho_cap"] == 2.5 * cost
    for one in json.loads((tmp_path / "r" / "statements.json").read_text()):
        assert "a cap of" in one["text"]
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "complete"


@pytest.mark.usefixtures("undrawn")
def test_the_paper_guarantees_nothing(images: Path, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("owner,sigma,more\n0,0.1,x\n1,0.2,x\n2,0,x\n3,0.6,x\n")
    given = train_words(images, "noise=secure", "model=features", rounds=1)
    run = [*given, "--preset", "paper", "--contracts", "c.csv"]
    done = call_here(*run, "--workers", "1", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert "Run folder: r" in done.stdout
    statements = json.loads((tmp_path / "r" / "statements.json").read_text())
    assert [one["sigma"] for one in statements] == [0.1, 0.2, 0.0, 0.6]
    for one in statements:
        assert "Nothing is guaranteed" in one["text"]
        assert one["rho_total"] is None
        assert not one["guaranteed"]
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["epsilon"] == {"min": None, "median": None, "max": None}


@pytest.mark.usefixtures("undrawn")
def test_owners_of_a_file_travel_with_the_run(images: Path, tmp_path: Path) -> None:
    """A resumed run reads the copy in its folder, and knows it for the same owners."""
    rows = "".join(f"o{i},1,{100 + i},1,0.2\n" for i in range(4))
    (tmp_path / "people.csv").write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
    given = [
        word for word in train_words(images, "file=people.csv", rounds=1) if word != "owners=4"
    ]
    given = [word for i, word in enumerate(given) if given[i : i + 2] != ["--set", "--set"]]
    given += ["--sigma", "0.1", "--workers", "1"]
    done = call_here(*given, "--out", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "people.csv").unlink()
    again = call_here("train", "--resume", "r", "--workers", "1", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == json.loads(done.stdout)
    statements = json.loads((tmp_path / "r" / "statements.json").read_text())
    assert [(one["index"], one["owner"]) for one in statements] == [(i, f"o{i}") for i in range(4)]
    assert statements[2]["text"].startswith("Owner o2, ")
    inside = call_here(
        *train_words(images, rounds=1), "--contracts", "r/contracts.csv", "--out", "r",
        "--overwrite", cwd=tmp_path,
    )  # fmt: skip
    assert inside.returncode == 2
    assert (tmp_path / "r" / "contracts.csv").exists()
