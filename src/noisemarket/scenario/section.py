"""What the tables of a scenario have in common, and what their keys may be, in words."""

from __future__ import annotations

from collections.abc import Iterator
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
