"""``noisemarket calibrate`` as a user meets it, on a few images of MNIST: processes and kills."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import PATIENCE, assert_sentence, call, call_here, command, wait_until
from tests.tiny_images import write_images

from noisemarket.cli import main
from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.game.surface import SURFACES
from noisemarket.scenario import Scenario, dump_scenario, load_scenario
from noisemarket.scenario.surface_file import read_surface
from noisemarket.study.calibrate import (
    Grid,
    Point,
    Points,
    Setting,
    fingerprint,
    measure,
    point_order,
)

pytestmark = pytest.mark.training

ROUNDS = 8
PRINTED = SURFACES["printed"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first images of MNIST, in a folder of idx files."""
    return write_images(tmp_path_factory.mktemp("mnist"), 400, 200)


def words(images: Path, *more: str) -> list[str]:
    settings = [
        "protection=paper", "owners=3", "channels=[4,8]", "hidden=16", f"rounds={ROUNDS}",
        "local_rate=0.3", "averaging=0.5", f'data="{images}"', *more,
    ]  # fmt: skip
    named = [word for setting in settings for word in ("--set", setting)]
    return ["calibrate", *named, "--workers", "1"]


def read_points(path: Path) -> tuple[Point, ...]:
    alike = json.loads(path.read_text().partition("\n")[0])["fingerprint"]
    with Points(path, alike) as points:
        return tuple(points.results.values())


def without_times(folder: Path) -> list[dict[str, Any]]:
    points = [asdict(point) for point in read_points(folder / "points.jsonl")]
    return [{k: v for k, v in point.items() if k != "seconds"} for point in points]


GRID = ["--sigmas", "0,0.3", "--betas", "1", "--mixed", "none", "--name", "tiny"]


@pytest.fixture(scope="module")
def whole(images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A calibration of two points from start to end."""
    folder = tmp_path_factory.mktemp("runs")
    done = call(*words(images), *GRID, "--out", "whole", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "whole", json.loads(done.stdout)


def test_a_calibration_measures_real_training(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = whole
    still, noisy = read_points(folder / "points.jsonl")
    assert (still.sigma, noisy.sigma) == (0.0, 0.3)
    assert still.accuracy > noisy.accuracy + 10, "noise costs accuracy"
    assert still.rounds == len(still.accuracy_per_round) == ROUNDS
    assert still.accuracy_per_round[-1] == still.accuracy
    assert still.loss != still.last_loss, "the average of the models is what counts"
    assert load_scenario(folder / "scenario.toml").privacy.noise == "simulated"
    assert summary["averaged"]
    assert summary["points"] == summary["points_wanted"] == 2
    assert summary["complete"]
    assert summary["gamma"] is None, "two sigmas are too few for a fit"
    assert any(remark.startswith("No fit") for remark in summary["remarks"])
    assert json.loads((folder / "summary.json").read_text()) == summary
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["points"], status["points_done"]) == ("complete", 2, 2)
    assert not (folder / "checkpoints").exists()
    assert not (folder / "tiny.toml").exists()


@pytest.mark.usefixtures("undrawn")
def test_mixed_contracts_are_measured_with_their_effective_noise(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = ["--sigmas", "0.6", "--betas", "1", "--mixed", "0.34:0.1"]
    with pytest.raises(SystemExit):
        main([*words(images, "protection=sharded", "owners=6"), *grid, "--out", "r"])
    alike, mixed = read_points(tmp_path / "r" / "points.jsonl")
    assert (alike.effective_noise, alike.share) == pytest.approx((0.6, 1.0), rel=1e-3)
    weights = np.array([1 / (0.01 + 1 / 66)] * 2 + [1 / (0.36 + 1 / 66)] * 4)
    sigma = np.array([0.1] * 2 + [0.6] * 4)
    noise = np.sqrt(6 * (weights**2 * sigma**2).sum()) / weights.sum()
    assert (mixed.sellers, mixed.sigma) == (0.34, 0.1)
    assert mixed.effective_noise == pytest.approx(noise, rel=0.02)
    assert mixed.share == pytest.approx(weights.sum() ** 2 / (6 * (weights**2).sum()), rel=0.02)


@pytest.mark.parametrize(
    ("given", "problem"),
    [("0.5", "pairs share:sigma"), ("1.5:0.1", "between 0 and 1"), ("0.5:0.7", "sigma_max"),
     ("0.01:0.1", "leaves sellers and others"), ("0.5:0.1,0.5:0.1", "each once")],
)  # fmt: skip
def test_mixed_contracts_that_cannot_be(
    given: str, problem: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([*words(images), "--mixed", given, "--out", "r"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert_sentence(said)
    assert problem in said
    assert not (tmp_path / "r").exists()


def test_every_owner_gets_the_point(images: Path) -> None:
    scenario = Scenario.from_preset(
        "market", owners=3, data=str(images), beta={"distribution": "uniform", "low": 1, "high": 9},
        noise="secure", rho_cap=1e-9,
    )  # fmt: skip
    made = point_order(scenario, Setting(0.2, 0.1, 5))
    other = point_order(scenario, Setting(0.2, 10.0, 5))
    assert made.job.sigma.tolist() == [0.2] * 3
    assert (made.job.seed, made.job.noise) == (5, "simulated")
    assert all(budget.rho_cap == float("inf") for budget in made.budgets), "no cap holds here"
    labels = made.job.data.train_labels
    uneven, even = (one.job.partition.label_counts(labels).std(axis=1) for one in (made, other))
    assert uneven.mean() > 2 * even.mean()


def test_without_an_average_the_last_model_counts(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    scenario = load_scenario(whole[0] / "scenario.toml", settings=["averaging=0", "rounds=1"])
    point = measure(scenario, Setting(0.0, 1.0, 1), tmp_path / "kept", workers=1)
    assert point is not None
    assert (point.accuracy, point.loss) == (point.last_accuracy, point.last_loss)
    assert list((tmp_path / "kept").iterdir()), "until the point is safe"


def rounds_kept(checkpoint: Path) -> int:
    if not checkpoint.exists():
        return 0
    with np.load(checkpoint) as kept:
        return int(kept["round_number"])


@pytest.mark.usefixtures("undrawn")
def test_killed_in_the_middle_of_a_point_and_resumed(
    images: Path, whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    run = command(*words(images), *GRID, "--out", "cut")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(run, cwd=tmp_path, stdout=quiet, stderr=quiet) as process:
        second = folder / "checkpoints" / f"{Setting(0.3, 1.0, 1).name}.npz"
        wait_until(lambda: rounds_kept(second) >= 1, process, 0.005)
        process.send_signal(signal.SIGKILL)
    assert json.loads((folder / "status.json").read_text())["state"] == "running"
    first = (folder / "points.jsonl").read_bytes()
    assert first.count(b"\n") == 1
    assert 1 <= rounds_kept(second) < ROUNDS, "it goes on in the middle of a point"
    (folder / "points.jsonl").write_bytes(first + b'{"sigma": 0.3, "be')
    done = call_here("calibrate", "--resume", "cut", "--workers", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (folder / "points.jsonl").read_bytes().startswith(first), "never measured again"
    assert without_times(folder) == without_times(whole[0])
    summary, expected = json.loads(done.stdout), dict(whole[1])
    del summary["seconds"], expected["seconds"]
    assert summary == expected
    assert not (folder / "checkpoints").exists()


@pytest.mark.slow
def test_a_stopped_calibration_says_how_to_go_on(images: Path, tmp_path: Path) -> None:
    run = command(*words(images, "rounds=5000"), *GRID, "--out", "r")
    with subprocess.Popen(
        run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: any((tmp_path / "r" / "checkpoints").glob("*.npz")), process)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert "stopped after 0 of 2 points; continue with --resume r" in said
    assert "Traceback" not in said
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"
    assert list((tmp_path / "r" / "checkpoints").glob("*.npz"))


def measured(folder: Path, grid: Grid, leave: int = 0) -> None:
    """A calibration's folder whose points lie on the printed surface, the last few left out."""
    folder.mkdir()
    (folder / "status.json").write_text("{}")
    scenario = Scenario.from_preset("paper", noise="simulated", data="nowhere")
    (folder / "scenario.toml").write_text(dump_scenario(scenario))
    alike = fingerprint(scenario, "data")
    plan = {
        "name": "own", "grid": asdict(grid), "command": "noisemarket calibrate --preset paper",
        "data": "data", "labels": 0, "fingerprint": alike,
    }  # fmt: skip
    (folder / "calibration.json").write_text(json.dumps(plan))
    settings = list(grid.settings(1))
    with Points(folder / "points.jsonl", alike) as points:
        for one in settings[: len(settings) - leave]:
            accuracy = float(PRINTED.quality(one.sigma, one.beta)) - 2.0
            loss = float(PRINTED.loss(one.sigma, one.beta))
            points.add(
                Point(one.sigma, one.beta, one.seed, accuracy, loss, accuracy, loss, 30, 0, 9.0)
            )


def test_a_finished_grid_is_only_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(tmp_path / "r", Grid())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--resume", "r", "--json"])
    assert end.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(summary["gamma"], PRINTED.gamma, rtol=1e-3)
    np.testing.assert_allclose(summary["zeta"], (PRINTED.zeta[0], PRINTED.zeta[1] - 2), rtol=1e-3)
    assert summary["rms_accuracy"] < 0.01
    assert summary["rms_to_printed"] == pytest.approx(2.0)
    assert summary["curve_beta"] == 1.0
    printed = [round(one["printed"], 1) for one in summary["curve"]]
    assert printed == [96.8, 96.3, 95.0, 92.3, 86.8, 76.8, 62.2]
    shown = {path.name for path in (tmp_path / "r" / "figures").iterdir()}
    assert shown == {"surface.png", "surface.svg", "accuracy.png", "accuracy.svg"}
    figure = (tmp_path / "r" / "figures" / "accuracy.svg").read_text()
    assert "2.00 points root mean square apart" in figure
    assert "paper's printed fit" in figure
    assert list(read_surface(tmp_path / "r" / "own.toml").gamma) == summary["gamma"]
    with pytest.raises(SystemExit):
        main(["negotiate", "--set", "surface=r/own.toml", "--set", "owners=2", "--json",
              "--mechanism", "uniform", "--out", "n"])  # fmt: skip
    assert json.loads(capsys.readouterr().out)["mean_quality"] < 90


@pytest.mark.usefixtures("undrawn")
def test_a_point_that_fails_costs_no_other(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A worker dies at one point: the others are measured, and it alone when resumed."""
    asked: list[Setting] = []
    dies = [Setting(0.1, 1.0, 1)]

    def trained(_scenario: Scenario, one: Setting, *_more: object) -> Point:
        asked.append(one)
        if one in dies:
            raise NoisemarketError("A worker process died; the round is lost.")
        accuracy = float(PRINTED.quality(one.sigma, one.beta))
        return Point(one.sigma, one.beta, one.seed, accuracy, 1.0, accuracy, 1.0, 8, 0, 1.0)

    monkeypatch.setattr("noisemarket.study.calibrate.measure", trained)
    monkeypatch.chdir(tmp_path)
    few = ["--sigmas", "0,0.1,0.3", "--betas", "1,10", "--mixed", "none"]
    with pytest.raises(SystemExit) as end:
        main([*words(images), *few, "--out", "r"])
    assert end.value.code == 1
    problem = capsys.readouterr().err
    assert_sentence(problem)
    assert "1 of 6 points could not be measured (try again with --resume r)" in problem
    assert len(read_points(tmp_path / "r" / "points.jsonl")) == 5
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"
    del asked[:]
    failed, dies[:] = list(dies), []
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--resume", "r", "--sigmas", "0,0.1,0.3,0.6", "--seeds", "1"])
    assert end.value.code == 0
    assert set(asked) == {*failed, Setting(0.6, 1.0, 1), Setting(0.6, 10.0, 1)}
    assert len(asked) == 3, "finished points are never measured again; a larger grid goes on"
    assert len(read_points(tmp_path / "r" / "points.jsonl")) == 8
    text = tomllib.loads((tmp_path / "r" / "paper-measured.toml").read_text())
    assert text["provenance"]["command"].endswith(
        "--sigmas 0,0.1,0.3,0.6 --betas 1,10 --mixed none --seeds 1 --name paper-measured"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--sigmas", "0.1,x"], "--sigmas"),
        (["--sigmas", "-0.1"], "sigmas"),
        (["--sigmas", "nan"], "sigmas"),
        (["--sigmas", "0.1,0.7"], "sigma_max = 0.6"),
        (["--betas", "0"], "betas"),
        (["--betas", ""], "--betas"),
        (["--seeds", "0"], "seeds"),
        (["--name", "a/b"], "--name"),
        (["--name", "printed"], "--name"),
        (["--workers", "0"], "--workers"),
        (["--set", "data=nowhere"], "nowhere"),
        (["--set", "owners=300"], "owners"),
        (["--set", "surface=moon"], "surface"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(
    images: Path,
    more: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([*words(images), "--out", "r", *more])
    assert end.value.code == 2
    out, problem = capsys.readouterr()
    assert out == ""
    assert_sentence(problem)
    assert said in problem
    assert list(tmp_path.iterdir()) == []


def changed(folder: Path, copy: Path, name: str, old: str, new: str) -> None:
    """A copy of a folder with a change in one file; & in ``new`` is ``old``."""
    shutil.copytree(folder, copy)
    text = (copy / name).read_text()
    assert old in text
    (copy / name).write_text(text.replace(old, new.replace("&", old)))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--resume", "nothing"], "is not a calibration"),
        (["--resume", "empty"], "is not a calibration"),
        (["--resume", "broken"], "cannot be read"),
        (["--resume", "good", "--set", "rounds=3"], "--resume"),
        (["--resume", "good", "--seed", "3"], "--seed"),
        (["--resume", "good", "--sigmas", "0.9"], "sigma_max"),
        (["--resume", "edited"], "scenario.toml that changed"),
        (["--resume", "mixed"], "a point of other settings or data"),
    ],
)
def test_what_cannot_be_resumed(
    more: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    measured(tmp_path / "good", Grid())
    shutil.copytree(tmp_path / "good", tmp_path / "broken")
    (tmp_path / "broken" / "calibration.json").write_text('{"name": "x"}')
    changed(tmp_path / "good", tmp_path / "edited", "scenario.toml", "shards = 64", "shards = 32")
    changed(tmp_path / "good", tmp_path / "mixed", "points.jsonl", 'fingerprint": "', "&0")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["calibrate", *more])
    assert end.value.code == 2
    problem = capsys.readouterr().err
    assert_sentence(problem)
    assert said in problem
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_points_of_other_images_do_not_mix(
    images: Path,
    whole: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = shutil.copytree(images, tmp_path / "images")
    changed(whole[0], tmp_path / "r", "scenario.toml", str(images), str(other))
    for labels in other.glob("train-labels*"):
        content = labels.read_bytes()
        labels.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--resume", "r", "--sigmas", "0,0.3,0.4"])
    assert end.value.code == 2
    problem = capsys.readouterr().err
    assert_sentence(problem)
    assert "start a new folder" in problem
    assert before == {
        path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()
    }


def test_a_foreign_checkpoint_is_refused_and_stays(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    scenario = load_scenario(whole[0] / "scenario.toml", settings=["rounds=1"])
    setting = Setting(0.0, 1.0, 1)
    measure(scenario, setting, tmp_path, workers=1)
    (kept,) = tmp_path.iterdir()
    before = kept.read_bytes()
    other = load_scenario(whole[0] / "scenario.toml", settings=["rounds=1", "batch=16"])
    with pytest.raises(BadInput, match="another scenario: remove it to measure this point anew"):
        measure(other, setting, tmp_path, workers=1)
    assert kept.read_bytes() == before


def test_a_fingerprint_is_of_what_a_point_depends_on(tmp_path: Path) -> None:
    def of(**settings: object) -> str:
        return fingerprint(Scenario.from_preset("market", **settings), "data")

    same = of()
    assert same == of(seed=9, data="elsewhere", noise="simulated", epsilon_cap=3.0, discount=0.5)
    others = {"shards": 32, "rounds": 29, "owners": 99, "data_size": 500.0, "protection": "paper"}
    for name, value in others.items():
        assert of(**{name: value}) != same
    assert fingerprint(Scenario.from_preset("market"), "other data") != same
    rows = "privacy_cost,data_size,beta,markup\n1,600,1,0\n"
    (tmp_path / "owners.csv").write_text(rows)
    (tmp_path / "copy.csv").write_text(rows)
    (tmp_path / "other.csv").write_text(rows.replace("600", "601"))
    by_file, by_copy, by_other = (
        of(file=str(tmp_path / name)) for name in ("owners.csv", "copy.csv", "other.csv")
    )
    assert by_file == by_copy != by_other
