"""Files are written whole or not at all, and what is locked is refused to everybody else."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.little_room import little_room

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import (
    LOCK,
    UNFINISHED,
    JsonLines,
    digest,
    exclusive,
    is_open,
    open_atomic,
    private_folder,
    read_json_lines,
    save_arrays,
    write_atomic,
    write_json,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes, links and limits of POSIX")

HOLD = """
import sys
from pathlib import Path
from noisemarket.files import exclusive
lock = exclusive(Path(sys.argv[1]), "file")
print("held", flush=True)
sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_text_and_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, "one\nÄ\r\n")
    assert path.read_bytes() == "one\nÄ\r\n".encode()
    write_atomic(path, b"\0\r\n\xff")
    assert path.read_bytes() == b"\0\r\n\xff"
    assert names(tmp_path) == {"a"}


def test_json_has_no_number_that_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"b": [1.5, None]})
    assert path.read_text(encoding="utf-8") == '{\n  "b": [\n    1.5,\n    null\n  ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"b": float("inf")})
    assert json.loads(path.read_text()) == {"b": [1.5, None]}


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays(tmp_path: Path, compressed: bool) -> None:
    save_arrays(tmp_path / "a.npz", compressed=compressed, x=np.arange(3), name="n")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as saved:
        assert saved["x"].tolist() == [0, 1, 2]
        assert str(saved["name"]) == "n"
    assert names(tmp_path) == {"a.npz"}


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, "old")
    with open_atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(ZeroDivisionError), open_atomic(path) as file:
        file.write(b"half" * (1 // 0))
    assert path.read_text() == "new"
    assert names(tmp_path) == {"a"}


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".a.{'0f' * 8}{UNFINISHED}"
    others = {f".a.b.{'0f' * 8}{UNFINISHED}", f".a.{'0g' * 8}{UNFINISHED}", f"a{UNFINISHED}"}
    for name in (left.name, *others):
        (tmp_path / name).touch()
    write_atomic(tmp_path / "a", "x")
    assert names(tmp_path) == {"a", *others}


def test_two_processes_at_once(tmp_path: Path) -> None:
    """The other finishes first and removes what it takes for left over: its version stays."""
    path = tmp_path / "a"
    with open_atomic(path) as file:
        file.write(b"mine")
        write_atomic(path, "the other's")
    assert path.read_text() == "the other's"
    assert names(tmp_path) == {"a"}
    path.unlink()
    with pytest.raises(FileExistsError), open_atomic(path, replace=False):
        write_atomic(path, "the other's")
    path.unlink()
    with pytest.raises(NoisemarketError, match="No such file"), open_atomic(path):
        next(tmp_path.iterdir()).unlink()


@posix
def test_a_private_file_is_private_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("open to all")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        with open_atomic(path, private=True) as file:
            (unfinished,) = names(tmp_path) - {"key"}
            assert mode(tmp_path / unfinished) == 0o600
            file.write(b"secret")
        write_atomic(tmp_path / "public", "x")
        assert mode(private_folder(tmp_path / "sub" / "own")) == 0o700
    finally:
        os.umask(before)
    assert (path.read_bytes(), mode(path), mode(tmp_path / "public")) == (b"secret", 0o600, 0o666)
    assert [is_open(one) for one in (path, tmp_path / "public", tmp_path / "sub" / "own")] == [
        *(False, True, False)
    ]


@posix
@pytest.mark.parametrize("private", [False, True])
def test_no_symlink_is_followed(
    tmp_path: Path, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a").symlink_to("victim")
    write_atomic(tmp_path / "a", "new", private=private)  # the link is replaced
    assert not (tmp_path / "a").is_symlink()
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (tmp_path / f".b.guessed{UNFINISHED}").symlink_to("victim")
    with pytest.raises(NoisemarketError, match=r"b cannot be written: File exists\."):
        write_atomic(tmp_path / "b", "new", private=private)
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "b").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_special_files_are_written_straight(tmp_path: Path) -> None:
    with pytest.raises(NoisemarketError, match=r"^/dev/full cannot be written: No space left"):
        write_atomic(Path("/dev/full"), "x")
    assert not Path("/dev/full").is_file()
    write_atomic(Path("/dev/null"), b"x")
    assert Path("/dev/null").is_char_device()
    read, write = os.pipe()
    write_atomic(Path(f"/dev/fd/{write}"), "through a pipe")
    assert os.read(read, 100) == b"through a pipe"
    os.close(read)
    os.close(write)


@posix
def test_a_private_file_is_not_sent_to_a_device(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to("/dev/null")
    write_atomic(tmp_path / "key", "secret", private=True)
    assert (tmp_path / "key").read_text() == "secret"
    assert not (tmp_path / "key").is_symlink()


@posix
def test_without_room_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, "old")
    with little_room(100), pytest.raises(NoisemarketError, match=r"a cannot be written: File too"):
        write_atomic(path, bytes(200))
    assert path.read_text() == "old"
    assert names(tmp_path) == {"a"}


def test_a_disk_that_fails_at_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(NoisemarketError, match=r"a cannot be written: No space left on device\."):
        write_atomic(tmp_path / "a", "x", private=True)
    assert names(tmp_path) == set()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(NoisemarketError, match="cannot be written"):
        write_atomic(tmp_path / "no" / "folder", "x")
    for private in (False, True):
        with pytest.raises(NoisemarketError, match="cannot be written"):
            write_atomic(tmp_path, "x", private=private)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("content", ["there", None])
def test_a_file_that_exists_can_be_kept(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a"
    if content is not None:
        path.write_text(content)
        with pytest.raises(FileExistsError), open_atomic(path, replace=False) as file:
            file.write(b"new")
        assert path.read_text() == content
    else:
        with open_atomic(path, replace=False) as file:
            file.write(b"new")
        assert path.read_text() == "new"
    assert names(tmp_path) == {"a"}


def test_a_held_file_is_refused_in_one_sentence_even_to_its_own_process(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("data")
    with exclusive(path, "--out"):
        with pytest.raises(BadInput, match=r"--out .*a is in use by another run\."):
            exclusive(path, "--out")
        with pytest.raises(BadInput, match=r"in use by another calibration\."):
            exclusive(path, "points", "another calibration")
        assert path.read_text() == "data"
    exclusive(path, "--out").close()
    assert path.read_text() == "data"
    assert names(tmp_path) == {"a"}


def test_a_folder_is_locked_by_a_file_in_it(tmp_path: Path) -> None:
    with exclusive(tmp_path, "--out"):
        assert names(tmp_path) == {LOCK}
        with pytest.raises(BadInput, match="in use"):
            exclusive(tmp_path, "--out")
    assert names(tmp_path) == set()


@posix
def test_a_symlink_leads_to_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").touch()
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "a")
    with exclusive(tmp_path / "a", "file"), pytest.raises(BadInput, match="in use"):
        exclusive(tmp_path / "elsewhere" / "link", "file")


@pytest.mark.process
def test_a_lock_of_another_process_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    command = [sys.executable, "-c", HOLD, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"held"
        with pytest.raises(BadInput, match="in use"):
            exclusive(path, "file")
        other.kill()
        other.wait()
        exclusive(path, "file").close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.process
def test_a_forked_child_neither_holds_nor_releases(tmp_path: Path) -> None:
    path = tmp_path / "a"
    lock = exclusive(path, "file")
    child = os.fork()
    if child == 0:  # pragma: no cover
        lock.close()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BadInput, match="in use"):
        exclusive(path, "file")
    child = os.fork()
    if child == 0:  # pragma: no cover
        time.sleep(60)
        os._exit(0)
    lock.close()
    exclusive(path, "file").close()
    os.kill(child, 9)
    os.waitpid(child, 0)


def test_waiting_for_a_lock(tmp_path: Path) -> None:
    """Many in turn, each of which removes the lock's file: never two at once."""
    inside: list[int] = []
    seen: list[int] = []

    def enter(number: int) -> None:
        for _ in range(5):
            with exclusive(tmp_path / "a", "file", wait=True):
                inside.append(number)
                seen.append(len(inside))
                time.sleep(0.001)
                inside.remove(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 20


def test_what_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be used \(No such file or directory\)\."):
        exclusive(tmp_path / "no" / "folder", "file")
    assert names(tmp_path) == set()
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be used"):
        exclusive(tmp_path / "file" / "in", "file")
    (tmp_path / f".b{LOCK}").mkdir()
    with pytest.raises(BadInput, match="cannot be used"):
        exclusive(tmp_path / "b", "file")


def test_json_lines_have_one_user_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(BadInput, match=r"journal .*folder cannot be used"):
        JsonLines(tmp_path / "no" / "folder", "journal", "another job")
    assert names(tmp_path) == set()
    with JsonLines(path, "journal", "another job") as file:
        file.append({"a": 1}, [2])
        with pytest.raises(BadInput, match=r"in use by another job\."):
            JsonLines(path, "journal", "another job")
        assert path.read_bytes() == b'{"a": 1}\n[2]\n'
    assert names(tmp_path) == {"a"}


def test_an_unfinished_line_is_skipped_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for left in (b"[3", b"3", b"\xff", bytes(512)):
        path.write_bytes(b"[1]\n[2]\n" + left)
        assert read_json_lines(path, "journal", list) == [[1], [2]]
        assert path.read_bytes().endswith(left)
        with JsonLines(path, "journal", "another job") as file:
            assert (file.read(list), file.unfinished) == ([[1], [2]], left)
            file.append([4])
        assert path.read_bytes() == b"[1]\n[2]\n[4]\n"


def test_a_whole_document_counts_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"[1]\n[2]")
    assert read_json_lines(path, "journal", list) == [[1], [2]]
    with JsonLines(path, "journal", "another job") as file:
        assert (file.read(list), file.unfinished) == ([[1], [2]], b"")
        file.append([3])
        file.append([4])
    assert path.read_bytes() == b"[1]\n[2]\n[3]\n[4]\n"


@pytest.mark.parametrize("line", [b"[1", b"\xff", b"1", b"", b"[" * 100_000])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"[1]\n" + line + b"\n[3]\n")
    with pytest.raises(BadInput, match=r"points .*a is damaged in line 2: measure it again\."):
        read_json_lines(path, "points", list, "measure it again.")


@posix
def test_json_lines_without_room(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with JsonLines(path, "journal", "another job") as file:
        file.append([1])
        with little_room(100), pytest.raises(NoisemarketError, match="a cannot be written: File"):
            file.append([0] * 200)
        with pytest.raises(NoisemarketError, match="open it again"):
            file.append([2])
    with JsonLines(path, "journal", "another job") as file:
        assert file.read(list) == [[1]]


def test_a_digest_knows_where_a_part_ends() -> None:
    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    assert digest(b"ab", b"c") == digest(b"ab", b"c")
    assert len(digest()) == 32
