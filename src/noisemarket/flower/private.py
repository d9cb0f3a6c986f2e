"""Files and folders for their owner alone: 0600 and 0700, whatever the umask says."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else may enter; one that is there stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def is_open(path: Path) -> bool:
    """Whether others may read or enter it. (Windows does not say.)"""
    return sys.platform != "win32" and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def write_private(place: Path, content: bytes) -> None:
    """Write a file, whole or not at all; on disk when this returns."""
    beside = place.with_name(f".{place.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(place)
