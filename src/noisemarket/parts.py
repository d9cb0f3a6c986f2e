"""Parts by name: those of this package, or your own by ``package.module:Name``."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any, Generic, TypeVar

from noisemarket.errors import BadInput

Part = TypeVar("Part")


def full_name(part: type) -> str:
    """The name by which a class of one's own is found, such as ``package.module:Name``."""
    return f"{part.__module__}:{part.__qualname__}"


class Parts(Mapping[str, Part], Generic[Part]):
    """The parts of one kind by name, read only; one's own is a subclass of one of ``bases``."""

    def __init__(self, field: str, known: Mapping[str, Part], *bases: type) -> None:
        self._field, self._known, self._bases = field, dict(known), bases

    def __getitem__(self, name: str) -> Part:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def find(self, name: str, field: str | None = None, *, load: bool = False) -> Part:
        """The part of that name. One's own is imported only if ``load`` is true.

        Names in messages and files of others are looked up without ``load``, and run nothing. The
        current folder is looked in last, unless Python was told not to (``-P``).
        """
        field = field or self._field
        if name in self._known:
            return self._known[name]
        module, colon, inside = name.partition(":")
        if not colon:
            close = difflib.get_close_matches(name, self._known, n=1)
            choices = f"choose one of: {', '.join(self._known)}; or give package.module:Name."
            remedy = f"did you mean {close[0]}? If not, {choices}" if close else choices
            raise BadInput(field, name, remedy)
        try:
            if load and not sys.flags.safe_path and str(Path.cwd()) not in sys.path:
                sys.path.append(str(Path.cwd()))  # a command looks in its own
            found: Any = import_module(module) if load else sys.modules[module]
            for attribute in inside.split("."):
                found = getattr(found, attribute)
            self._check(found, name)
        except KeyError:
            remedy = f"{module} is not imported here: import it first, if you trust it."
            raise BadInput(field, name, remedy) from None
        except Exception as problem:
            remedy = f"it cannot be used ({type(problem).__name__}: {problem})."
            raise BadInput(field, name, remedy) from problem
        part: Part = found
        return part

    def _check(self, part: object, name: str) -> None:
        if not (isinstance(part, type) and issubclass(part, self._bases)):
            bases = " or ".join(full_name(base) for base in self._bases)
            raise TypeError(f"not a subclass of {bases}")
        if isabstract(part):
            raise TypeError(
                f"it lacks {', '.join(sorted(getattr(part, '__abstractmethods__', ())))}"
            )
        own = getattr(part, "name", None)
        if isinstance(own, str) and own != name:
            raise TypeError(f"its name is {own!r}: remove the attribute name")
