"""Files that one process at a time may hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from noisemarket.errors import BadInput

if sys.platform != "win32":
    import fcntl


def exclusive(
    path: Path,
    field: str,
    user: str = "another run",
    *,
    create: bool = True,
    wait: bool = False,
) -> BinaryIO:
    """The file, open to be read and written, and held until it is closed (or the process ends).

    A file that is held already, by this process or another, is refused in the name of ``field`` as
    in use by ``user``, unless one is to ``wait`` for it. Where the system has no such lock
    (Windows), nothing is held.
    """
    try:
        if create:
            path.touch(exist_ok=True)
        file = path.open("r+b")
    except OSError as problem:
        raise _unusable(path, field, problem) from None
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            raise BadInput(field, str(path), f"is in use by {user}.") from None
        except OSError as problem:
            file.close()
            raise _unusable(path, field, problem) from None
    return file


def _unusable(path: Path, field: str, problem: OSError) -> BadInput:
    return BadInput(field, str(path), f"cannot be used ({problem.strerror or problem}).")
