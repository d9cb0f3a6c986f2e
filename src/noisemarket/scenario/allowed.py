"""What a key of a scenario may be, in words, read off the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def allowed_values(section: type[BaseModel]) -> dict[str, str]:
    """Each key of a section, and what it may be, such as ``whole number from 1 to 256``."""
    about = section.model_json_schema().get("properties", {})
    return {name: _words(about[name]) for name in section.model_fields}


def _words(about: Mapping[str, Any]) -> str:
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(_words(one) for one in about["anyOf"]))
    if "enum" in about:
        return " or ".join(about["enum"])
    if "const" in about:
        return str(about["const"])
    kind = about.get("type", "")
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _bounds(about)
    if kind == "array" and "prefixItems" in about:
        return f"{len(about['prefixItems'])} whole numbers{_bounds(about['prefixItems'][0])}"
    plain = {"string": "text", "boolean": "true or false", "object": "table", "array": "list"}
    return plain.get(kind, str(kind))


def _bounds(about: Mapping[str, Any]) -> str:
    low, above = about.get("minimum"), about.get("exclusiveMinimum")
    high, below = about.get("maximum"), about.get("exclusiveMaximum")
    words = []
    if above is not None:
        words.append(f"above {above:g}")
    if low is not None:
        words.append(f"{low:g} or more" if high is None and below is None else f"from {low:g}")
    if high is not None:
        words.append(f"to {_number(high)}")
    if below is not None:
        words.append(f"to below {_number(below)}" if low is not None else f"below {_number(below)}")
    return "".join(f" {word}" for word in words)


def _number(value: float) -> str:
    if value == 1 << 63:
        return "2^63"
    if value == int(value) and value < 1e15:
        return f"{int(value):,}"
    return f"{value:g}".replace("e+", "e")
