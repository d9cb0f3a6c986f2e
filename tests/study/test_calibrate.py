"""``noisemarket calibrate`` as a user meets it, on a few images of MNIST: processes and kills."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.partition import label_counts
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
from noisemarket.errors import NoisemarketError
from noisemarket.game.levels import SURFACES
from noisemarket.scenario import Scenario, dump_scenario, load_scenario
from noisemarket.scenario.surface_file import fingerprint, read_surface
from noisemarket.study import trainings
from noisemarket.study.calibrate import Grid, Point, points_of, simulated, tasks_of
from noisemarket.study.trainings import (
    TrainingFile,
    TrainingResult,
    TrainingTask,
    TrainingWork,
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
        "protection=paper", "owners=3", "widths=[4,8,16]", f"rounds={ROUNDS}",
        f'data="{images}"', *more,
    ]  # fmt: skip
    named = [word for setting in settings for word in ("--set", setting)]
    return ["calibrate", *named, "--workers", "1"]


def grid_of(folder: Path) -> Grid:
    plan = json.loads((folder / "calibration.json").read_text())["grid"]
    mixed = tuple((share, sigma) for share, sigma in plan["mixed"])
    return Grid(tuple(plan["sigmas"]), tuple(plan["betas"]), plan["seeds"], mixed)


def read_points(folder: Path) -> list[Point]:
    with TrainingFile(folder / "trainings.jsonl") as file:
        scenario = load_scenario(folder / "scenario.toml")
        return points_of(tasks_of(scenario, grid_of(folder)), file.results)


def without_times(folder: Path) -> list[dict[str, Any]]:
    points = [asdict(point) for point in read_points(folder)]
    return [{k: v for k, v in point.items() if k != "seconds"} for point in points]


GRID = ["--sigmas", "0,0.3", "--betas", "1", "--mixed", "none", "--name", "tiny"]


@pytest.fixture(scope="module")
def whole(images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A calibration of two points from start to end."""
    folder = tmp_path_factory.mktemp("runs")
    done = call(*words(images), *GRID, "--out", "whole", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "measured 1 of 2\nmeasured 2 of 2\n"
    return folder / "whole", json.loads(done.stdout)


def test_a_calibration_measures_real_training(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = whole
    still, noisy = read_points(folder)
    assert (still.sigma, noisy.sigma) == (0.0, 0.3)
    assert still.accuracy > noisy.accuracy + 10, "noise costs accuracy"
    lines = [json.loads(one) for one in (folder / "trainings.jsonl").read_text().splitlines()]
    assert [len(one["accuracies"]) for one in lines] == [ROUNDS] * 2
    assert still.accuracy in {one["accuracies"][-1] for one in lines}
    assert load_scenario(folder / "scenario.toml").privacy.noise == "simulated"
    assert summary["averaged"]
    assert summary["points"] == summary["points_wanted"] == 2
    assert summary["complete"]
    assert summary["gamma"] is None, "two sigmas are too few for a fit"
    assert any(remark.startswith("No fit") for remark in summary["remarks"])
    assert json.loads((folder / "summary.json").read_text()) == summary
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["points"], status["points_done"]) == ("complete", 2, 2)
    assert not (folder / "tiny.toml").exists()
    figure = (folder / "figures" / "surface.svg").read_text()
    assert ("Test accuracy" in figure, "Measured less" in figure) == (True, False)


@pytest.mark.usefixtures("undrawn")
def test_mixed_contracts_are_measured_with_their_effective_noise(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = ["--sigmas", "0.6", "--betas", "1", "--mixed", "0.34:0.1"]
    with pytest.raises(SystemExit):
        main(
            [*words(images, "protection=sharded", "owners=6", "weight_cap=1"), *grid, "--out", "r"]
        )
    alike, mixed = read_points(tmp_path / "r")
    assert (alike.effective_noise, alike.effective_share) == pytest.approx((0.6, 1.0), rel=1e-3)
    weights = np.array([1 / (0.01 + 1 / 66)] * 2 + [1 / (0.36 + 1 / 66)] * 4)
    sigma = np.array([0.1] * 2 + [0.6] * 4)
    noise = np.sqrt(6 * (weights**2 * sigma**2).sum()) / weights.sum()
    assert (mixed.sellers, mixed.sigma) == (0.34, 0.1)
    assert mixed.effective_noise == pytest.approx(noise, rel=0.02)
    assert mixed.effective_share == pytest.approx(
        weights.sum() ** 2 / (6 * (weights**2).sum()), rel=0.02
    )


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
    work = TrainingWork(simulated(scenario))
    grid = Grid((0.2,), (0.1, 10.0))
    tasks = tasks_of(scenario.model_copy(update={"seed": 5}), grid)
    by_beta = {setting.beta: work.order(task) for setting, task in tasks.items()}
    made, other = by_beta[0.1], by_beta[10.0]
    assert made.job.sigma.tolist() == [0.2] * 3
    assert (made.job.seed, made.job.noise) == (5, "simulated")
    assert all(budget.rho_cap == float("inf") for budget in made.budgets), "no cap holds here"
    labels = made.job.data.train_labels
    uneven, even = (label_counts(one.job.partition, labels).std(axis=1) for one in (made, other))
    assert uneven.mean() > 2 * even.mean()


def test_the_model_that_would_be_deployed_counts(whole: tuple[Path, dict[str, Any]]) -> None:
    noise, seen = np.zeros(3), {}
    for server in ("plain", "auto"):
        settings = [f"server={server}", "rounds=3"]
        scenario = load_scenario(whole[0] / "scenario.toml", settings=settings)
        rounds: list[Any] = []
        result = TrainingWork(scenario)(TrainingTask(1, noise, 1.0), rounds.append)
        last = rounds[-1].averaged or rounds[-1].score
        assert (rounds[-1].averaged is None) == (server == "plain")
        assert result.accuracies[-1] == last.accuracy
        seen[server] = result.accuracies
    assert seen["plain"] != seen["auto"]


@pytest.mark.usefixtures("undrawn")
def test_killed_after_a_point_and_resumed(
    images: Path, whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    file = folder / "trainings.jsonl"
    run = command(*words(images), *GRID, "--out", "cut")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(run, cwd=tmp_path, stdout=quiet, stderr=quiet) as process:
        wait_until(lambda: has_lines(file, 1), process, 0.005)
        process.send_signal(signal.SIGKILL)
    assert json.loads((folder / "status.json").read_text())["state"] == "running"
    first = file.read_bytes().splitlines(keepends=True)[0]
    file.write_bytes(first + b'{"seed": 1, "noi')
    done = call_here("calibrate", "--resume", "cut", "--workers", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(first), "never measured again"
    assert without_times(folder) == without_times(whole[0])
    summary, expected = json.loads(done.stdout), dict(whole[1])
    del summary["seconds"], expected["seconds"]
    assert summary == expected


@pytest.mark.slow
def test_a_stopped_calibration_says_how_to_go_on(images: Path, tmp_path: Path) -> None:
    run = command(*words(images, "rounds=5000"), *GRID, "--out", "r")
    with subprocess.Popen(
        run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        status = tmp_path / "r" / "status.json"
        wait_until(lambda: status.exists() and "points_done" in status.read_text(), process)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert "stopped after 0 of 2 points; continue with --resume r" in said
    assert "Traceback" not in said
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"


def result_of(task: TrainingTask, accuracy: float, noise: float) -> TrainingResult:
    return TrainingResult(*task.key, [accuracy], noise, 1.0, 9.0, 9.0)


def measured(folder: Path, grid: Grid) -> None:
    """A calibration's folder whose points lie on the printed surface."""
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
    with TrainingFile(folder / "trainings.jsonl") as file:
        for one, task in tasks_of(scenario, grid).items():
            accuracy = float(PRINTED.quality(one.sigma, one.beta)) - 2.0
            file.add(result_of(task, accuracy, one.sigma))


def test_a_finished_grid_is_only_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(tmp_path / "r", Grid())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--resume", "r", "--json"])
    assert end.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(summary["gamma"][1:4], PRINTED.gamma[1:4], rtol=1e-3)
    assert summary["zeta"][0] == 1.0
    assert summary["rms_accuracy"] < 0.01
    assert summary["rms_to_printed"] == pytest.approx(2.0)
    shown = {path.name for path in (tmp_path / "r" / "figures").iterdir()}
    assert shown == {"surface.png", "surface.svg"}
    figure = (tmp_path / "r" / "figures" / "surface.svg").read_text()
    assert "paper's printed fit" in figure
    assert list(read_surface(tmp_path / "r" / "own.toml").gamma) == summary["gamma"]
    with pytest.raises(SystemExit):
        main(["negotiate", "--set", "surface=r/own.toml", "--set", "owners=2", "--json",
              "--mechanism", "uniform", "--out", "n"])  # fmt: skip
    assert json.loads(capsys.readouterr().out)["mean_quality"] < 90


@pytest.mark.usefixtures("undrawn")
def test_after_a_failure_only_the_rest_is_measured(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A process dies at the fifth point: when resumed, the first four are not measured again."""
    asked: list[TrainingTask] = []
    dies = [True]

    def trained(
        _work: object, tasks: list[TrainingTask], **_more: object
    ) -> Iterator[tuple[TrainingTask, TrainingResult]]:
        for number, task in enumerate(tasks):
            if number == 4 and dies[0]:
                raise NoisemarketError("A process died; what it was doing is lost.")
            asked.append(task)
            accuracy = float(PRINTED.quality(task.sigma[0], task.beta or 1.0))
            yield task, result_of(task, accuracy, float(task.sigma[0]))

    monkeypatch.setattr(trainings, "in_processes", trained)
    monkeypatch.chdir(tmp_path)
    few = ["--sigmas", "0,0.1,0.3,0.6", "--betas", "1,10", "--mixed", "none"]
    with pytest.raises(SystemExit) as end:
        main([*words(images), *few, "--out", "r"])
    assert end.value.code == 1
    *steps, problem = capsys.readouterr().err.splitlines(keepends=True)
    assert steps == [f"measured {number} of 8\n" for number in range(1, 5)]
    assert_sentence(problem)
    assert "A process died" in problem
    assert "stopped after 4 of 8 points; continue with --resume r" in problem
    assert len(read_points(tmp_path / "r")) == 4
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"
    dies[0] = False
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--resume", "r"])
    assert end.value.code == 0
    assert len(asked) == len({one.key for one in asked}) == 8, "each once"
    assert len(read_points(tmp_path / "r")) == 8
    text = tomllib.loads((tmp_path / "r" / "paper-measured.toml").read_text())
    command = text["provenance"]["command"]
    assert command.startswith("noisemarket calibrate ")
    assert command.endswith(" --out r"), "as it was typed"


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
        (["--resume", "good", "--seed", "3"], "--resume"),
        (["--resume", "good", "--sigmas", "0.9"], "--resume"),
        (["--resume", "edited"], "scenario.toml that changed"),
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
    changed(tmp_path / "good", tmp_path / "edited", "scenario.toml", "clip = 1.0", "clip = 2.0")
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
    done = tmp_path / "r" / "trainings.jsonl"
    done.write_bytes(done.read_bytes().splitlines(keepends=True)[0])  # a point is left to measure
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--resume", "r"])
    assert end.value.code == 2
    problem = capsys.readouterr().err
    assert_sentence(problem)
    assert "start a new folder" in problem
    assert before == {
        path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()
    }


def test_a_fingerprint_is_of_what_a_point_depends_on(tmp_path: Path) -> None:
    def of(**settings: object) -> str:
        return fingerprint(Scenario.from_preset("market", **settings), "data")

    same = of()
    assert same == of(seed=9, discount=0.5)
    counted = {
        "noise": "simulated",
        "epsilon_cap": 3.0,
        "rho_cap": 0.5,
        "delta": 1e-6,
        "neighbours": "zero_out",
    }
    for name, value in counted.items():
        assert of(**{name: value}) == same, "how privacy is counted does not matter"
    others = {
        "records_per_shard": 2,
        "rounds": 29,
        "owners": 99,
        "data_size": 500.0,
        "protection": "paper",
    }
    for name, value in others.items():
        assert of(**{name: value}) != same
    assert fingerprint(Scenario.from_preset("market"), "other data") == same, "MNIST by its name"
    here, elsewhere = of(data="here"), of(data="elsewhere")
    assert same != here == elsewhere, "one's own data by its content, wherever it lies"
    assert fingerprint(Scenario.from_preset("market", data="here"), "other data") != here
    rows = "privacy_cost,data_size,beta,markup\n1,600,1,0\n"
    (tmp_path / "owners.csv").write_text(rows)
    (tmp_path / "copy.csv").write_text(rows)
    (tmp_path / "other.csv").write_text(rows.replace("600", "601"))
    by_file, by_copy, by_other = (
        of(file=str(tmp_path / name)) for name in ("owners.csv", "copy.csv", "other.csv")
    )
    assert by_file == by_copy != by_other
