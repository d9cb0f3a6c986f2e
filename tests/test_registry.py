"""Parts by name: those of the package, and those of other packages by entry point."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from noisemarket.errors import BadInput
from noisemarket.registry import Registry, subclass_of

GROUP = "noisemarket.tests"


def _not_a_string(part: object) -> None:
    if isinstance(part, str):
        raise TypeError("is a string")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    """A registry, with a package installed that brings three parts, two of them broken."""
    (tmp_path / "brought.py").write_text("GOOD = 7\nWRONG = 'text'\n", encoding="utf-8")
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: brought\nVersion: 1.0\n", encoding="utf-8")
    lines = ["good = brought:GOOD", "wrong = brought:WRONG", "absent = brought:ABSENT",
             "own = brought:GOOD"]  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "brought", raising=False)
    return Registry[object]("kind", GROUP, {"own": 1}, _not_a_string)


def test_own_parts_and_brought_ones_are_found(registry: Registry[object]) -> None:
    assert registry.find("own") == 1, "an entry point must not replace a part of the package"
    assert registry.find("good") == 7
    assert list(registry) == ["own", "good", "wrong", "absent"]
    assert len(registry) == 4


def test_an_unknown_name_lists_the_choices(registry: Registry[object]) -> None:
    with pytest.raises(BadInput, match="kind = other: choose one of: own, good, wrong, absent"):
        registry.find("other")


@pytest.mark.parametrize(("name", "reason"), [("wrong", "is a string"), ("absent", "ABSENT")])
def test_a_broken_part_is_named_with_its_package(
    registry: Registry[object], name: str, reason: str
) -> None:
    with pytest.raises(BadInput, match=rf"kind = {name}: cannot be loaded from brought.*{reason}"):
        registry.find(name)


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    def area(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("part", "words"),
    [(Square(), "is not a subclass"), (int, "is not a subclass of .*Shape"), (Shape, "lacks area")],
)
def test_only_classes_that_can_be_used_are_parts(part: object, words: str) -> None:
    subclass_of(Shape)(Square)
    with pytest.raises(TypeError, match=words):
        subclass_of(Shape)(part)
