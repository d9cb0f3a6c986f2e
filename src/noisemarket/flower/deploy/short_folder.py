"""A temporary folder with a short name, for sockets, whose paths may not be long.

A process that is killed leaves its folder behind. Each folder therefore has a lock that its process
holds; whoever makes the next one removes those that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from noisemarket.files import Closing

_LOCK = "held"


class ShortFolder(Closing):
    """A folder for this user alone, until ``close``.

    Args:
        kind: what it is for: part of its name, and of the names of those that are cleaned up.
    """

    def __init__(self, kind: str) -> None:
        prefix = f"nm-{kind}-"
        for other in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove_if_left(other)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = FileLock(unnamed, thread_local=False)
        self._lock.acquire()
        unnamed.rename(self.path / _LOCK)  # only now can others take it for one that was left

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _remove_if_left(folder: Path) -> None:
    """Remove a folder whose process has died; others, and those of other users, stay."""
    lock = folder / _LOCK
    with contextlib.suppress(OSError, Timeout):
        if not lock.is_file():
            return
        with FileLock(lock).acquire(timeout=0):
            shutil.rmtree(folder, ignore_errors=True)
