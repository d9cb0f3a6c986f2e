"""Files: written whole or not at all, private if need be, locked for one process at a time."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import sys
import tokenize
import tomllib
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from noisemarket.errors import BadInput, NoisemarketError

Parsed = TypeVar("Parsed")

RESTORE = "restore it from a backup."
DEEPEST = 20
"""Tables and lists within one another; a scenario needs five."""

LOCK = ".lock"
"""The name of a folder's lock, while a process holds it."""

UNFINISHED = ".new"
"""The ending of a file that is being written. A killed process leaves it behind, until the file is
written again."""


@contextlib.contextmanager
def open_atomic(path: Path, *, private: bool = False, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write, and put it in place when the block ends without an error.

    A reader sees all of the file or nothing new, even after a crash. The content goes to a new file
    of a random name in the same folder; a symlink is never followed to write it. A special file
    such as ``/dev/stdout`` is written to directly, unless ``private``: then only the user may read
    the file (mode 0600). Without ``replace`` an existing file raises ``FileExistsError``.
    """
    try:
        if not private and path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600 if private else 0o666), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            try:
                if replace:
                    unfinished.replace(path)
                else:
                    os.link(unfinished, path)
            except FileNotFoundError:
                if not path.exists():
                    raise
                if not replace:  # another process wrote the file just now, and its version stays
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        finally:
            unfinished.unlink(missing_ok=True)
        remove_unfinished(path)
        sync_folder(path.parent)
    except OSError as problem:
        if isinstance(problem, FileExistsError) and not replace:
            raise
        raise not_written(path, problem) from None


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left behind when they wrote a file."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}{re.escape(UNFINISHED)}")
    for other in path.parent.iterdir():
        if name.fullmatch(other.name):
            other.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file as ``open_atomic`` does, text as UTF-8; it is on disk when this returns."""
    with open_atomic(path, private=private) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, document: Any, *, private: bool = False) -> None:
    """Write a JSON file whole or not at all. Numbers that are not finite raise ValueError."""
    write_atomic(path, json.dumps(document, indent=2, allow_nan=False) + "\n", private=private)


def save_arrays(
    path: Path, *, private: bool = False, compressed: bool = False, **arrays: Any
) -> None:
    """Write arrays to an ``.npz`` file, whole or not at all."""
    memory = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(memory, **arrays)
    write_atomic(path, memory.getvalue(), private=private)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file that ``save_arrays`` wrote without compression.

    Nothing in the file is run, and no more memory is taken than the file has bytes. ``ValueError``
    if it is not such a file.
    """
    out = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError("compressed")
                content = io.BytesIO(archive.read(member))
                out[member.filename.removesuffix(".npy")] = _array(content)
    except (zipfile.BadZipFile, EOFError, TypeError, SyntaxError, OverflowError, MemoryError,
            NotImplementedError, RuntimeError, tokenize.TokenError) as problem:  # fmt: skip
        raise ValueError(str(problem) or "not an .npz file") from None
    return out


def _array(content: io.BytesIO) -> NDArray[Any]:
    """The array of an ``.npy`` file, if it is as long as its header says."""
    version = np.lib.format.read_magic(content)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError("not a known version of .npy")
    shape, _, dtype = read(content)
    if math.prod(shape) * dtype.itemsize != len(content.getbuffer()) - content.tell():
        raise ValueError("not as long as its header says")
    content.seek(0)
    return np.asarray(np.lib.format.read_array(content, allow_pickle=False))


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class Closing(ABC):
    """Something to close, which the end of a ``with`` block does."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Lock(Closing):
    """A lock that this process holds until ``close``, the end of a ``with`` block, or its death."""

    def __init__(self, lock: FileLock) -> None:
        self._lock, self._process = lock, os.getpid()

    def close(self) -> None:
        """Release the lock and remove its file. A forked child releases nothing."""
        if self._lock.is_locked and os.getpid() == self._process:
            with contextlib.suppress(OSError):  # Windows removes no file that is open
                Path(self._lock.lock_file).unlink()
            self._lock.release()


def exclusive(path: Path, field: str, user: str = "another run", *, wait: bool = False) -> Lock:
    """Lock a file or a folder against all others that ask for this lock.

    The lock is a file of its own: ``.NAME.lock`` beside a file, ``.lock`` in a folder. What it
    guards is not touched and need not exist. ``field`` and ``user``, its possible holder, are for
    the error.
    """
    guarded = path.resolve()  # one lock, whatever symlinks lead there
    file = guarded / LOCK if guarded.is_dir() else guarded.with_name(f".{guarded.name}{LOCK}")
    try:
        if not file.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        lock = FileLock(file, mode=0o600, thread_local=False)
        lock.acquire(blocking=wait)
    except Timeout:
        raise BadInput(field, str(path), f"is in use by {user}.") from None
    except OSError as problem:
        raise unusable(field, path, "used", problem) from None
    return Lock(lock)


class JsonLines(Closing):
    """A file of JSON lines that only grows, such as a journal, for one process at a time.

    A line is on disk before anything follows from it. So an unfinished last line, which a killed
    process left, was never acted upon: reading skips it, and the next ``append`` replaces it. A
    whole document that lacks only its line end counts: another program may have cut that off.
    What is not ``durable`` is left to the system to write, for files that nothing depends on.
    With ``last``, only the last line is read, however long the file is; ``wait`` for other users.
    """

    def __init__(
        self,
        path: Path,
        field: str,
        user: str,
        *,
        durable: bool = True,
        last: bool = False,
        wait: bool = False,
    ) -> None:
        self._path, self._field = path, field
        self._lock = exclusive(path, field, user, wait=wait)
        self._durable = durable
        try:
            new = not path.exists()
            if new:
                path.touch(exist_ok=True)
            self._file = path.open("r+b", buffering=0)  # a failed write must not come later
            start, content = last_line(self._file) if last else (0, self._file.read())
        except OSError as problem:
            self._lock.close()
            raise unusable(field, path, "used", problem) from None
        if new or not content:
            sync_folder(path.parent)
        whole = _whole(content)
        self._size = start + whole
        self._lines = content[:whole]
        self._missing_end = b"\n" if self._lines and not self._lines.endswith(b"\n") else b""
        self.unfinished = content[whole:]
        """What a killed process, or another program, left after the last whole line."""
        self._process, self._sound = os.getpid(), True

    def read(self, parse: Callable[[Any], Parsed], remedy: str = RESTORE) -> list[Parsed]:
        """The lines that were in the file when it was opened, as ``parse_json_lines`` has them."""
        return parse_json_lines(self._lines, self._path, self._field, parse, remedy)

    def append(self, *documents: Any) -> None:
        """Add a line for each document. They are on disk when this returns."""
        if not self._sound or os.getpid() != self._process:
            raise NoisemarketError(f"{self._path}: open it again before more is written.")
        lines = (json.dumps(document, allow_nan=False) + "\n" for document in documents)
        data = self._missing_end + "".join(lines).encode()
        self._sound = False
        try:
            self._file.seek(self._size)
            self._file.truncate()
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            if self._durable:
                os.fsync(self._file.fileno())
        except OSError as problem:
            raise not_written(self._path, problem) from None
        self._size += len(data)
        self._missing_end, self._sound = b"", True

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._lock.close()


def read_json_lines(
    path: Path, field: str, parse: Callable[[Any], Parsed], remedy: str = RESTORE
) -> list[Parsed]:
    """The lines of a file that may be growing, which is neither locked nor changed."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise unusable(field, path, "used", problem) from None
    return parse_json_lines(content, path, field, parse, remedy)


def parse_json_lines(
    content: bytes, path: Path, field: str, parse: Callable[[Any], Parsed], remedy: str = RESTORE
) -> list[Parsed]:
    """What ``parse`` makes of each line; an unfinished last one is skipped."""
    found = []
    for number, line in enumerate(content[: _whole(content)].splitlines(), start=1):
        try:
            found.append(parse(json.loads(line)))
        except (BadInput, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            reason = f"is damaged in line {number}: {remedy}"
            raise BadInput(field, str(path), reason) from None
    return found


def last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Where the last line of a file that has its end begins, and all from there on."""
    end, size = file.seek(0, os.SEEK_END), 1 << 12
    while True:
        start = max(0, end - size)
        file.seek(start)
        content = file.read(end - start)
        first = content.rfind(b"\n", 0, max(0, content.rfind(b"\n"))) + 1
        if first or start == 0:
            return start + first, content[first:]
        size *= 4


def _whole(content: bytes) -> int:
    """The bytes without an unfinished last line; a whole list or object needs no line end."""
    size = content.rfind(b"\n") + 1
    try:
        finished = isinstance(json.loads(content[size:]), list | dict)
    except (ValueError, RecursionError):
        finished = False
    return len(content) if finished else size


def private_folder(path: Path) -> Path:
    """Make a folder that only the user may enter (mode 0700); an existing one stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def is_open(path: Path) -> bool:
    """Whether other users may read or enter a file or folder. Windows does not say."""
    return _open_to_others(path.stat())


def read_private(path: Path, field: str, remedy: str) -> bytes:
    """The content of a small file that only the user may read, in such a folder; no symlinks."""
    try:
        refuse_open(path.parent, field, remedy)
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(file, "rb") as stream:
            if _open_to_others(os.fstat(stream.fileno())):
                raise BadInput(field, str(path), f"others may read it: {remedy}, or chmod 600.")
            return stream.read(10_000)
    except OSError as problem:
        raise unusable(field, path, "read", problem) from None


def refuse_open(folder: Path, field: str, remedy: str) -> None:
    """Refuse a folder that others may enter."""
    if is_open(folder):
        raise BadInput(field, str(folder), f"others may read it: {remedy}, or chmod 700.")


def _open_to_others(status: os.stat_result) -> bool:
    return sys.platform != "win32" and bool(stat.S_IMODE(status.st_mode) & 0o077)


def stamp(path: Path) -> tuple[int, ...]:
    """Tells a file from any other, and from itself once it has changed; empty if it is missing."""
    try:
        seen = path.stat()
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def digest(*parts: bytes) -> bytes:
    """A SHA-256 digest of all parts that also depends on where one ends and the next begins."""
    each = (hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(b"".join(each)).digest()


def unusable(field: str, path: Path | str, verb: str, problem: OSError) -> BadInput:
    """The error that says why what a field names cannot be used, read or written."""
    return BadInput(field, str(path), f"cannot be {verb} ({problem.strerror or problem}).")


def not_written(path: Path, problem: OSError) -> NoisemarketError:
    """The error that says why a file cannot be written."""
    return NoisemarketError(f"{path} cannot be written: {problem.strerror or problem}.")


def read_text(field: str, file: str | Path) -> str:
    """The text of a file that a field names."""
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "not a UTF-8 text file"
        if isinstance(problem, UnicodeDecodeError):
            line = problem.object.count(b"\n", 0, problem.start) + 1
            reason += f": see line {line:,}"
        raise BadInput(field, str(file), f"cannot be read ({reason}).") from None


def toml_in(field: str, file: str | Path, text: str) -> dict[str, Any]:
    """The document of a file that a field names, from its text."""
    try:
        return parse_toml(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(field, str(file), f"not valid TOML: {problem}.") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The document of a TOML text, nested ``DEEPEST`` times at most."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    level: list[Any] = [document]
    for _ in range(DEEPEST + 1):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return document
    raise _too_deep()


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_deep() -> tomllib.TOMLDecodeError:
    return tomllib.TOMLDecodeError(f"nested more than {DEEPEST} deep")
