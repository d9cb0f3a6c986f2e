"""What the tests of scenarios share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from noisemarket.errors import BadInput
from noisemarket.scenario import Scenario, load_scenario

HEADER = "privacy_cost,data_size,beta,markup"


def setting(*settings: str, preset: str | None = None) -> Scenario:
    return load_scenario(preset=preset, settings=settings)


def complaint(do: Callable[[], object]) -> str:
    """What the user is told: one sentence on one line, of field, value and remedy."""
    with pytest.raises(BadInput) as problem:
        do()
    bad = problem.value
    message = str(bad)
    assert "\n" not in message
    assert message.startswith(f"{bad.field} ")
    assert message.endswith((".", "?"))
    assert message.endswith(f" {bad.remedy}")
    assert bad.field
    assert bad.remedy
    return message
