"""Values as JSON can hold them: it knows no infinity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


def finite(value: float) -> float | None:
    """The number, None where it is infinite or none."""
    return float(value) if math.isfinite(value) else None


def plain(values: Mapping[str, Any], infinite: str | None = None) -> dict[str, Any]:
    """The values with ``infinite`` for what is not finite, and names of a choice as strings."""
    return {name: _plain(value, infinite) for name, value in values.items()}


def _plain(value: Any, infinite: str | None) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return infinite
    return str(value) if isinstance(value, StrEnum) else value
