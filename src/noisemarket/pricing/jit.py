"""Compiling with Numba, with a cache on disk where one can be written."""

from __future__ import annotations

from collections.abc import Callable
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
