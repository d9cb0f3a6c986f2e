"""What the tables of a scenario have in common, and what their keys may be, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

LARGEST = 1e30
"""The upper bound of numbers that have no other one; it is not worth a word."""

NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, lt=1)]
Auto = Literal["auto"]
"""Chosen by the model and by public figures."""


class Section(BaseModel):
    """A part of a scenario: read only. Unknown keys, NaN, infinity, and true or false in place of
    a number are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool(cls, value: object, info: ValidationInfo) -> object:
        """Python takes true for 1; a field that is a switch takes it as it is."""
        kind = cls.model_fields[str(info.field_name)].annotation
        switch = any(isinstance(one, bool) for one in _given(value, kind))
        if switch and not {int, float}.isdisjoint(_parts(kind)):
            raise ValueError("give a number, not true or false")
        return value


def _given(value: object, kind: Any) -> Iterator[object]:
    """A value, and where a field is a list or table of one kind, what is in it."""
    yield value
    if Any not in get_args(kind):
        if get_origin(kind) is tuple and isinstance(value, list | tuple):
            yield from value
        if get_origin(kind) is dict and isinstance(value, dict):
            yield from value.values()


def _parts(kind: Any) -> Iterator[Any]:
    """All types that a type is made of."""
    yield kind
    for part in get_args(kind):
        yield from _parts(part)


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
        words.append(f"{'to' if low is not None else 'and'} below {_number(below)}")
    return "".join(f" {word}" for word in words)


def _number(value: float) -> str:
    if value == 1 << 63:
        return "2^63"
    if value == int(value) and value < 1e15:
        return f"{int(value):,}"
    return f"{value:g}".replace("e+", "e")
