"""Arrays that a process and its workers both have in memory, and that nobody else can find.

They lie in one block without a name in any file system: an anonymous file of the kernel's (Linux),
or a file that is deleted as soon as it is open (other POSIX systems). When the last process that
has it mapped is gone, however it ended, so is the block: a killed group leaves no records behind.
On Windows the block has a name, and the system frees it in the same way.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Layout = Mapping[str, tuple[int, tuple[int, ...], str]]
"""Where each array lies in the block, its shape and its type."""

_APART = 64  # bytes: where arrays begin, so that none shares a line of the cache


class SharedArrays:
    """Arrays by name, in one block of memory that worker processes can map.

    It can be given to a process that is started by ``multiprocessing``, as an argument; nowhere
    else can it be pickled. All arrays are copied; OSError if there is not enough memory.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        layout, at = {}, 0
        for name, array in arrays.items():
            layout[name] = at, array.shape, array.dtype.str
            at += -(-array.nbytes // _APART) * _APART
        size = max(at, 1)
        self._handle = _new_block(size)
        self._map(_mapped(self._handle, size), layout)
        for name, array in arrays.items():
            self.views[name][...] = array

    def _map(self, block: mmap.mmap, layout: Layout) -> None:
        self._block, self._layout = block, layout
        self.views: dict[str, NDArray[Any]] = {
            name: np.ndarray(shape, dtype, buffer=block, offset=at)
            for name, (at, shape, dtype) in layout.items()
        }
        """The arrays themselves, by name: what one process writes, all see."""

    @classmethod
    def attach(cls, handle: Any, size: int, layout: Layout) -> SharedArrays:
        """What another process has made; for ``multiprocessing``."""
        shared = cls.__new__(cls)
        shared._handle = handle.detach() if sys.platform != "win32" else handle
        shared._map(_mapped(shared._handle, size), layout)
        shared._forget()
        return shared

    def __reduce__(self) -> tuple[Any, ...]:
        handle: Any = self._handle
        if sys.platform != "win32":
            handle = reduction.DupFd(handle)  # raises unless a process is being started
        return SharedArrays.attach, (handle, len(self._block), self._layout)

    def close(self) -> None:
        """Let go of the block. Views that are still in use keep it."""
        self.views = {}
        with contextlib.suppress(BufferError):
            self._block.close()
        self._forget()

    def _forget(self) -> None:
        """Close the descriptor: what is mapped stays mapped."""
        if sys.platform != "win32" and self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _new_block(size: int) -> Any:
    """A block of zeros: a descriptor, or on Windows a name."""
    if sys.platform == "win32":
        return f"noisemarket-{os.getpid()}-{secrets.token_hex(8)}"
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("noisemarket", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _mapped(handle: Any, size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size, tagname=handle)
    return mmap.mmap(handle, size)
