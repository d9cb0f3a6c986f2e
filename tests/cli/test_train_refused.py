"""``noisemarket train`` refuses what it cannot do, in one sentence, before it leaves anything."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.cli.small_jobs import fails, train_words
from tests.commands import (
    assert_sentence,
    without_torch,
)
from tests.tiny_images import write_images

from noisemarket.cli import main
from noisemarket.files import not_written
from noisemarket.market.run_folder import RunFolder, read_status


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"), 400, 200)


GOOD = "owner,sigma\n0,0.1\n1,0.1\n2,0.1\n3,0.1\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--sigma", "-1"], "sigma"),
        (["--sigma", "nan"], "sigma"),
        (["--sigma", "inf"], "sigma"),
        (["--sigma", "0.7"], "sigma_max = 0.6"),
        ([], "--contracts"),
        (["--sigma", "0.1", "--contracts", "good.csv"], "--contracts"),
        (["--sigma", "0.1", "--set", "clip=0"], "clip"),
        (["--sigma", "0.1", "--set", "clip=nan"], "clip"),
        (["--sigma", "0.1", "--set", "records_per_shard=0"], "records_per_shard"),
        (["--sigma", "0.1", "--set", "rounds=0"], "rounds"),
        (["--sigma", "0.1", "--set", "averaging=1"], "averaging"),
        (["--sigma", "0.1", "--set", "channels=[0,8]"], "channels"),
        (["--sigma", "0.1", "--set", "channels=[-1,8]"], "channels"),
        (["--sigma", "0.1", "--set", "owners=70000"], "owners"),
        (["--sigma", "0.1", "--set", "delta=1"], "delta"),
        (["--sigma", "0.1", "--set", "rho_cap=0.01"], "rho_cap 0.01 does not allow one round"),
        (["--sigma", "0.1", "--set", "rho_cap=-1"], "rho_cap"),
        (["--sigma", "0.1", "--set", "epsilon_cap=0.5"], "does not allow one round"),
        (["--sigma", "0", "--set", "epsilon_cap=9"], "nothing bounds"),
        (["--sigma", "0.1", "--set", "data=nowhere"], "nowhere"),
        (["--contracts", "unknown.csv"], "is not an owner of this scenario"),
        (["--contracts", "nan.csv"], "no usable sigma for owner 2"),
        (["--contracts", "word.csv"], "sigma of owner 2"),
        (["--contracts", "short.csv"], "no usable sigma for owner 3"),
        (["--contracts", "large.csv"], "sigma_max"),
        (["--contracts", "columns.csv"], "columns owner and sigma"),
        (["--contracts", "empty.csv"], "columns owner and sigma"),
        (["--contracts", "bytes.csv"], "cannot be read"),
        (["--contracts", "missing.csv"], "missing.csv"),
        (["--sigma", "0.1", "--workers", "0"], "--workers"),
        (["--sigma", "0.1", "--workers", "-3"], "--workers"),
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
    for name, text in {
        "good": GOOD,
        "unknown": GOOD + "9,0.1\n",
        "nan": GOOD.replace("2,0.1", "2,nan"),
        "word": GOOD.replace("2,0.1", "2,much"),
        "short": GOOD.replace("3,0.1\n", ""),
        "large": GOOD.replace("2,0.1", "2,0.61"),
        "columns": GOOD.replace("sigma", "noise"),
        "empty": "",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00owner")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([*train_words(images), "--out", "r", *more])
    assert end.value.code == 2
    out, problem = capsys.readouterr()
    assert out == ""
    assert_sentence(problem)
    assert said in problem
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("name", "more", "first"),
    [("train", ["--sigma", "0.1"], "contracts.csv"),
     ("compare", ["--set", "surface=printed"], "plan.json"),  # of no job: there is no remark on it
     ("calibrate", [], "calibration.json")],
)  # fmt: skip
def test_a_run_whose_first_file_cannot_be_written_is_incomplete(
    name: str, more: list[str], first: str, images: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = RunFolder._path

    def full(folder: RunFolder, file: str) -> Path:
        if file == first:
            raise not_written(folder.path / file, OSError(errno.ENOSPC, "No space left on device"))
        return path(folder, file)

    monkeypatch.setattr(RunFolder, "_path", full)
    monkeypatch.chdir(tmp_path)
    said = fails([name, *train_words(images)[1:], *more, "--out", "r"], capsys, code=1)
    assert f"{first} cannot be written" in said
    assert read_status(Path("r"))["state"] == "incomplete"


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_resume_of_what_is_no_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["train", "--resume", name])
    assert end.value.code == 2
    assert_sentence(capsys.readouterr().err)
    assert not (tmp_path / "nothing").exists()
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.process
def test_a_missing_torch_is_named_with_its_extra(tmp_path: Path) -> None:
    done = without_torch("train", "--sigma", "0.1", "--set", "model=cnn", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "noisemarket: The CNN needs an extra: pip install 'noisemarket[cnn]'."
    ]
    assert list(tmp_path.iterdir()) == []
