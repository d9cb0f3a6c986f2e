"""What the tables of a scenario have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

NotNegative = Annotated[float, Field(ge=0, le=1e30)]
Positive = Annotated[float, Field(gt=0, le=1e30)]
Share = Annotated[float, Field(ge=0, lt=1)]
Auto = Literal["auto"]
"""Chosen by the model and by public figures (``training.tuning``)."""


class Section(BaseModel):
    """A part of a scenario: read only; unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
