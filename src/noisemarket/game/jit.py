"""Compiling with Numba, with a cache on disk where one can be written."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba import njit


def cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``njit`` that keeps compiled code on disk, if there is a folder that can be written."""

    def compile_it(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # Numba found no folder that it may write to
            return njit(**options)(function)

    return compile_it


def stamp_of(module: ModuleType) -> int:
    """A number that changes with a module's source.

    Numba's cache looks only at the file of the function that it caches. A compiled function that
    returns this number is compiled again after an edit of the module whose functions it calls.
    """
    source = inspect.getsource(module).encode()
    return int.from_bytes(hashlib.blake2b(source, digest_size=7).digest(), "big")
