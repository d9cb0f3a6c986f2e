"""Parts by name: those of the package, and one's own by ``package.module:Name``."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from noisemarket.errors import BadInput
from noisemarket.parts import Parts


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    def area(self) -> float:
        return 1.0


PARTS = Parts[type[Shape]]("shape", {"square": Square}, Shape)

OWN = """
from tests.test_parts import Shape, Square

class Circle(Shape):
    def area(self):
        return 3.14

class Unfinished(Shape):
    pass

class Renamed(Circle):
    name = "square"

TEXT = "text"
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_shapes.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_shapes", raising=False)


def test_parts_of_the_package_are_found_by_name() -> None:
    assert PARTS.find("square") is Square
    assert list(PARTS) == ["square"]
    with pytest.raises(BadInput, match=r"did you mean square\?"):
        PARTS.find("sqare")
    with pytest.raises(BadInput, match="choose one of: square; or give"):
        PARTS.find("other")


def test_a_name_in_a_message_loads_nothing() -> None:
    with pytest.raises(BadInput, match="own_shapes is not imported here"):
        PARTS.find("own_shapes:Circle")
    assert "own_shapes" not in sys.modules
    circle = PARTS.find("own_shapes:Circle", load=True)
    assert circle().area() == 3.14
    assert PARTS.find("own_shapes:Circle") is circle


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("own_shapes:TEXT", "not a subclass of .*Shape"),
        ("own_shapes:Unfinished", "lacks area"),
        ("own_shapes:Renamed", "its name is 'square'"),
        ("own_shapes:Absent", "AttributeError"),
        ("nobodys_module:Shape", "ModuleNotFoundError"),
        (":Shape", "ValueError"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        PARTS.find(name, load=True)
