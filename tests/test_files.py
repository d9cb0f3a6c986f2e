"""A file that is held is refused to everybody else until it is let go."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from noisemarket.errors import BadInput
from noisemarket.files import exclusive

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such lock")

HOLD = "import sys, fcntl; f = open(sys.argv[1], 'r+b'); fcntl.flock(f, 2); print(flush=True); "


def test_a_held_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path, "--out"), pytest.raises(BadInput, match="in use by another run"):
        exclusive(path, "--out")
    exclusive(path, "--out").close()


def test_reading_a_held_file_does_not_give_it_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path, "points") as file:
        file.write(b"x")
        file.flush()
        assert path.read_bytes() == b"x"
        with pytest.raises(BadInput, match="another calibration"):
            exclusive(path, "points", "another calibration")


def test_a_lock_of_another_process_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    command = [sys.executable, "-c", HOLD + "sys.stdin.read()", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(BadInput, match="in use"):
            exclusive(path, "journal")
        other.kill()
        exclusive(path, "journal", wait=True).close()


def test_what_cannot_be_opened_or_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        exclusive(tmp_path / "none", "journal", create=False)
    assert not (tmp_path / "none").exists()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("noisemarket.files.fcntl.flock", fail)
    with pytest.raises(BadInput, match="No locks available"):
        exclusive(tmp_path / "lock", "journal")
