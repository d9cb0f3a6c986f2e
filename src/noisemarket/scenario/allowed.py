"""What a key of a scenario may be, in words, read off the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

LARGEST = 1e30
"""The upper bound of numbers that have no other one; it is not worth a word."""


def allowed_values(section: type[BaseModel]) -> dict[str, str]:
    """Each key of a section, and what it may be, such as ``a whole number from 1 to 256``."""
    about = section.model_json_schema().get("properties", {})
    return {name: _words(about.get(name, {})) for name in section.model_fields}


def _words(about: Mapping[str, Any]) -> str:
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(_words(one) for one in about["anyOf"]))
    if "enum" in about:
        return " or ".join(about["enum"])
    if "const" in about:
        return str(about["const"])
    kind = about.get("type", "object")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(about)
    if kind == "array" and "prefixItems" in about:
        return f"{len(about['prefixItems'])} whole numbers{_bounds(about['prefixItems'][0])}"
    plain = {"string": "a text", "boolean": "true or false", "object": "a table", "array": "a list"}
    return plain[kind]


def _bounds(about: Mapping[str, Any]) -> str:
    low, above = about.get("minimum"), about.get("exclusiveMinimum")
    high, below = about.get("maximum"), about.get("exclusiveMaximum")
    high = None if high is not None and high >= LARGEST else high
    words = []
    if above is not None:
        words.append(f"above {above:g}")
    if low is not None:
        words.append(f"of at least {low:g}" if high is None and below is None else f"from {low:g}")
    if high is not None:
        words.append(f"to {_number(high)}" if low is not None else f"and at most {_number(high)}")
    if below is not None:
        words.append(f"to below {_number(below)}" if low is not None else f"below {_number(below)}")
    return "".join(f" {word}" for word in words)


def _number(value: float) -> str:
    if value == 1 << 63:
        return "2^63"
    if value == int(value) and value < 1e15:
        return f"{int(value):,}"
    return f"{value:g}".replace("e+", "e")
