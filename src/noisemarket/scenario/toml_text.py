"""TOML of any kind, such as a hostile one: what is nested too deeply is refused like bad syntax."""

from __future__ import annotations

import tomllib
from typing import Any

DEEPEST = 20
"""Tables and lists within one another; a scenario needs five."""


def parse_toml(text: str) -> dict[str, Any]:
    """The document of a TOML text.

    Args:
        text: the text.

    Returns:
        The document, nested ``DEEPEST`` times at most.

    Raises:
        tomllib.TOMLDecodeError: it is not valid, or nested more deeply.

    Example:
        >>> parse_toml("owners = 5")
        {'owners': 5}
    """
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
