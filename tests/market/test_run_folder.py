"""A run folder is one run's at a time, and says how that run stands."""

import errno
import json
import os
from pathlib import Path

import pytest

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import LOCK, not_written
from noisemarket.market import run_folder
from noisemarket.market.run_folder import RunFolder, read_status, still_runs


def status(path: Path) -> dict[str, object]:
    return dict(json.loads((path / "status.json").read_text()))


def names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_a_run_goes_on_where_it_began(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RunFolder.create(str(path), "x") as folder:
        folder.note(engine="flower")
        folder.status("incomplete", problem="stopped")
    early = "2020-01-01T00:00:00+00:00"
    folder.write_json("status.json", status(path) | {"started": early})
    with RunFolder.reopen(path, engine="flower") as again:
        said = status(path)
        assert (said["state"], said["started"], said["engine"]) == ("running", early, "flower")
        assert "problem" not in said
        again.status("complete", rounds=3)
    said = status(path)
    assert (said["state"], said["started"], said["engine"]) == ("complete", early, "flower")
    assert said["rounds"] == 3


def test_what_breaks_a_run_keeps_its_facts(tmp_path: Path) -> None:
    path = tmp_path / "r"
    folder = RunFolder.create(str(path), "x")
    folder.note(engine="flower")
    with pytest.raises(KeyError), folder:
        raise KeyError("no")
    said = status(path)
    assert (said["state"], said["engine"]) == ("incomplete", "flower")
    assert names(path) == {"status.json"}


def test_a_full_disk_has_room_for_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new file can be made, but the status that is there can be overwritten."""
    path = tmp_path / "r"

    def full(file: Path, *_: object, **__: object) -> None:
        raise not_written(file, OSError(errno.ENOSPC, "No space left on device"))

    folder = RunFolder.create(str(path), "x")
    folder.note(engine="embedded", much="x" * 500)
    monkeypatch.setattr(run_folder, "write_json", full)
    monkeypatch.setattr(run_folder, "write_atomic", full)
    with pytest.raises(NoisemarketError, match=r"trace\.csv cannot be written: No space"), folder:
        folder.write_text("trace.csv", "all")
    said = status(path)
    assert (said["state"], said["engine"]) == ("incomplete", "embedded")
    assert "trace.csv cannot be written" in str(said["problem"])
    assert names(path) == {"status.json"}


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RunFolder.create(str(path), "x") as folder:
        folder.write_text("ledger.sqlite", "money")
        before = status(path)
        with pytest.raises(BadInput, match=r"resume .*r is in use by another run\."):
            RunFolder.reopen(path)
        with pytest.raises(BadInput, match=r"out .*r is in use by another run\."):
            RunFolder.create(str(path), "x", overwrite=True)
        assert status(path) == before
        assert names(path) == {"status.json", "ledger.sqlite", LOCK}
    RunFolder.reopen(path).__exit__(None, None, None)
    assert names(path) == {"status.json", "ledger.sqlite"}


def test_a_folder_that_is_let_go_is_free(tmp_path: Path) -> None:
    """Without having been left as a context, and without a word about a file still open."""
    path = tmp_path / "r"
    RunFolder.create(str(path), "x")
    with RunFolder.reopen(path):
        pass


def test_replaced_in_place(tmp_path: Path) -> None:
    path, outside = tmp_path / "r", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    with RunFolder.create(str(path), "x") as folder:
        folder.write_text("sub/a.txt", "old")
        (path / "link").symlink_to(outside)
    (path / LOCK).touch()  # as a run that was killed leaves it
    with pytest.raises(BadInput, match="not complete: resume it, rename, or --overwrite"):
        RunFolder.create(str(path), "x")
    (path / "status.json").write_text("{")
    with pytest.raises(BadInput, match="exists already: rename, or --overwrite it"):
        RunFolder.create(str(path), "x")
    with RunFolder.create(str(path), "x", overwrite=True):
        assert names(path) == {"status.json", LOCK}
    assert names(outside) == {"kept"}


def test_a_run_that_was_killed_at_its_very_beginning_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.mkdir()
    (path / f".status.json.{'0' * 16}.new").write_text("{")
    (path / LOCK).touch()
    with RunFolder.create(str(path), "x"):
        assert status(path)["state"] == "running"
    assert names(path) == {"status.json"}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    for overwrite in (False, True):
        with pytest.raises(BadInput, match="not a run folder"):
            RunFolder.create(str(tmp_path), "x", overwrite=overwrite)
    assert names(tmp_path) == {"text"}


def test_a_status_that_cannot_be_read(tmp_path: Path) -> None:
    for damage in ("{", "5", ""):
        (tmp_path / "status.json").write_text(damage)
        with pytest.raises(BadInput, match=r"status\.json cannot be read\."):
            RunFolder.reopen(tmp_path)


def test_a_status_says_which_process_wrote_it(tmp_path: Path) -> None:
    with RunFolder.create(str(tmp_path / "r"), "r"):
        process = read_status(tmp_path / "r")["process"]
    assert process["id"] == os.getpid()
    assert still_runs(process)
    assert still_runs({**process, "began": process["began"] - 60.0}) is False
    assert still_runs({**process, "host": "elsewhere"}) is None
    assert still_runs(None) is None
