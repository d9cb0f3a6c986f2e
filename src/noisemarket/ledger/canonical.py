"""One way to write a document down, so that its bytes can be signed and hashed."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

INFINITE = "inf"
"""How an infinite number is written: JSON has none."""


def canonical(document: Any) -> str:
    """Canonical JSON: keys sorted, no white space, no NaN; a float as Python's ``repr`` gives it.

    Raises ValueError or TypeError for what has no such form.
    """
    return _encode(document)


def parse(text: str | bytes) -> Any:
    """What canonical JSON says; ValueError for any text that ``canonical`` would not have made."""
    if isinstance(text, bytes):
        text = text.decode()
    try:
        document = _decode(text)
        same = canonical(document) == text
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not same:
        raise ValueError("not canonical JSON")
    return document


def plain_number(value: float) -> float | str:
    """A float for JSON, infinity as its word."""
    return INFINITE if value == math.inf else value


def read_number(value: Any) -> float:
    """A float from JSON, as ``plain_number`` wrote it."""
    if value == INFINITE:
        return math.inf
    if isinstance(value, float):
        return value
    raise ValueError(f"{value!r} is no number")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
_decode = json.JSONDecoder(parse_constant=_refuse).decode
