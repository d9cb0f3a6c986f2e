"""The tables ``[[compared]]`` of a scenario: settings of one mechanism in a comparison."""

from __future__ import annotations

from pydantic import Field

from noisemarket.scenario.section import Section


class ComparedSection(Section):
    """What one mechanism is given when mechanisms are compared: each at its best."""

    mechanism: str = Field(description="its name")
    settings: dict[str, bool | int | float | str] = Field(
        {}, description="key = value, as for --set: of learning and menu, the surface and the floor"
    )
