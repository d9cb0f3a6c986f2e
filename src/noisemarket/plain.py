"""Values as JSON can hold them. In every file and output, ``null`` is a number that is not finite.

For a limit, a cost or a loss that is infinity: no cap, no guarantee, a loss beyond all bounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


def finite(value: float) -> float | None:
    """The number for JSON: None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def least_median_most(values: Sequence[float]) -> dict[str, float | None]:
    """The range of some numbers, for JSON."""
    shown = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: finite(value) for name, value in shown.items()}


def infinite(value: Any) -> float:
    """The number from JSON: infinity where it is None.

    Raises:
        ValueError: it is neither a number nor None.
    """
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for JSON: None for floats that are not finite, choices by their names."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return finite(value)
    return str(value) if isinstance(value, StrEnum) else value
