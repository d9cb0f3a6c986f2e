"""Public names say what they are, and their examples print what they say."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from typing import Any

import pytest

import noisemarket as nm

pytestmark = pytest.mark.compiled

MODULES = {
    *("noisemarket.errors", "noisemarket.federated.data", "noisemarket.federated.data_files"),
    *("noisemarket.federated.aggregation", "noisemarket.market.negotiation"),
    *("noisemarket.pricing.rule", "noisemarket.pricing.mechanism"),
    *("noisemarket.privacy.accountant", "noisemarket.privacy.zcdp"),
    *("noisemarket.scenario.load", "noisemarket.scenario.schema"),
}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_examples_print_what_they_say(module: str) -> None:
    result = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


PUBLIC = [
    one
    for one in (getattr(nm, name) for name in nm.__all__)
    if inspect.isclass(one) or inspect.isfunction(one)
]


@pytest.mark.parametrize("one", PUBLIC, ids=lambda one: one.__name__)
def test_public_names_say_what_they_are_and_show_an_example(one: Any) -> None:
    assert "Example:" in (inspect.getdoc(one) or "")


@pytest.mark.parametrize("one", PUBLIC, ids=lambda one: one.__name__)
def test_methods_that_others_fill_in_say_what_they_are_for(one: Any) -> None:
    for name in getattr(one, "__abstractmethods__", ()):
        assert inspect.getdoc(getattr(one, name)), name


def test_the_read_only_mapping_of_mechanisms() -> None:
    assert nm.MECHANISMS["pain_fl"].knows == "how costs and data are spread among these owners"
    with pytest.raises(TypeError):
        nm.MECHANISMS["mine"] = nm.MECHANISMS["dypp"]  # type: ignore[index]
