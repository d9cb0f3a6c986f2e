"""Public names say what they take, give and raise, and their examples print what they say."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import noisemarket as nm

pytestmark = pytest.mark.compiled

MODULES = {
    *("noisemarket.errors", "noisemarket.federated.data", "noisemarket.federated.data_files"),
    *("noisemarket.federated.weighting", "noisemarket.pricing.tables"),
    *(
        "noisemarket.pricing.rule",
        "noisemarket.pricing.mechanism",
        "noisemarket.market.negotiation",
    ),
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
FILLED_IN = [
    *(nm.Protection.budget, nm.Protection.from_settings, nm.Mechanism.check, nm.Dataset.of),
    *(
        getattr(one, name)
        for one in PUBLIC
        for name in sorted(getattr(one, "__abstractmethods__", ()))
        if inspect.isfunction(getattr(one, name))
    ),
]
"""Methods that others fill in or call to do so."""


def missing(function: Callable[..., Any], *, example: bool) -> list[str]:
    """What the docstring of a function leaves out."""
    signature = inspect.signature(function)
    takes = [name for name in signature.parameters if name not in ("self", "cls")]
    gives = signature.return_annotation not in (None, "None")
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    needed = {
        "Args": bool(takes),
        "Returns": gives and bool(takes),
        "Raises": any(isinstance(node, ast.Raise) for node in ast.walk(tree)),
        "Example": example,
    }
    said = inspect.getdoc(function) or ""
    left_out = [part for part, wanted in needed.items() if wanted and f"{part}:" not in said]
    return left_out + [name for name in takes if needed["Args"] and f"{name}:" not in said]


@pytest.mark.parametrize("one", PUBLIC, ids=lambda one: one.__name__)
def test_public_names_say_what_they_are(one: Any) -> None:
    if inspect.isfunction(one):
        assert missing(one, example=True) == []
        return
    said = inspect.getdoc(one) or ""
    assert "Example:" in said
    is_record = dataclasses.is_dataclass(one) and "__dataclass_fields__" in vars(one)
    fields = [field.name for field in dataclasses.fields(one)] if is_record else []
    if fields or "__init__" in vars(one):
        assert "Args:" in said or "Attributes:" in said
    assert [name for name in fields if name[0] != "_" and f"{name}:" not in said] == []


@pytest.mark.parametrize("method", FILLED_IN, ids=lambda method: method.__qualname__)
def test_methods_for_others_say_what_they_take_and_give(method: Any) -> None:
    assert missing(method, example=False) == []


def test_the_read_only_mapping_of_mechanisms() -> None:
    assert nm.MECHANISMS["pain_fl"].knows == "how costs and data are spread among these owners"
    with pytest.raises(TypeError):
        nm.MECHANISMS["mine"] = nm.MECHANISMS["dypp"]  # type: ignore[index]
