"""True and false are no numbers, in no field of a scenario."""

from __future__ import annotations

import contextlib

import pytest
from pydantic import BaseModel

from noisemarket.errors import BadInput
from noisemarket.scenario import Scenario
from noisemarket.scenario.load import load_scenario

SWITCHES = {"learning.reopen", "learning.carry_over"}


def fields() -> list[str]:
    """All keys of a scenario that are not tables."""
    found = []
    for name, info in Scenario.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += [f"{name}.{inner}" for inner in kind.model_fields]
        else:
            found.append(name)
    return found


def test_only_switches_take_true_or_false() -> None:
    taken = set()
    for field in fields():
        for value in (True, False):
            with contextlib.suppress(BadInput):
                load_scenario(settings={field: value})
                taken.add(field)
    assert taken == SWITCHES


@pytest.mark.parametrize("value", [True, False])
def test_a_number_or_a_distribution(value: bool) -> None:
    with pytest.raises(BadInput, match=r"population\.beta is .*: give a number, not true or false"):
        load_scenario(settings={"population.beta": value})
