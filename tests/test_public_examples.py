"""The examples in the docstrings of public names print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import noisemarket as nm

MODULES = {
    *("noisemarket.learning.rule", "noisemarket.mechanisms.mechanism", "noisemarket.negotiation"),
    *("noisemarket.privacy.accountant", "noisemarket.privacy.zcdp"),
    *("noisemarket.scenario.load", "noisemarket.scenario.schema"),
}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_examples_print_what_they_say(module: str) -> None:
    result = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 1
    assert result.failed == 0


def test_the_read_only_mapping_of_mechanisms() -> None:
    assert nm.MECHANISMS["pain_fl"].knows == "how costs and data are spread among these owners"
    with pytest.raises(TypeError):
        nm.MECHANISMS["mine"] = nm.MECHANISMS["dypp"]  # type: ignore[index]
