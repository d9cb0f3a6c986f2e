"""Text files and TOML of any kind, such as a hostile one: errors name the field and the file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput

DEEPEST = 20
"""Tables and lists within one another; a scenario needs five."""


def read_text(field: str, file: str | Path) -> str:
    """The text of a file that a field names."""
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "not a UTF-8 text file"
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
