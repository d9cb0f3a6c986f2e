"""Parts by name: those of this package, and those that a user's own package brings.

A package adds a part through an entry point, for example in its ``pyproject.toml``::

    [project.entry-points."noisemarket.protections"]
    my_protection = "my_package.protection:MyProtection"

The part is then known by that name on the command line, in scenarios and in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Generic, TypeVar

from noisemarket.errors import BadInput

Part = TypeVar("Part")


def subclass_of(base: type) -> Callable[[object], None]:
    """A check that a part is a class that can be used where ``base`` is asked for."""

    def check(part: object) -> None:
        if not (isinstance(part, type) and issubclass(part, base)):
            raise TypeError(f"is not a subclass of {base.__module__}.{base.__qualname__}")
        if isabstract(part):
            missing = sorted(getattr(part, "__abstractmethods__", ()))
            raise TypeError(f"lacks {', '.join(missing)}")

    return check


class Registry(Mapping[str, Part], Generic[Part]):
    """The parts of one kind, by name; a user's own are loaded when they are first asked for.

    Args:
        kind: the scenario field or option that names a part, used in error messages.
        group: the entry-point group, such as ``noisemarket.protections``.
        builtin: the parts of this package. An entry point cannot replace one of them.
        check: raises ``TypeError`` or ``ValueError`` for a loaded object that is not such a part.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        builtin: Mapping[str, Part],
        check: Callable[[Part], None] = lambda part: None,
    ) -> None:
        self._kind, self._group, self._check = kind, group, check
        self._builtin = dict(builtin)
        self._loaded: dict[str, Part] = {}

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        found = {point.name: point for point in entry_points(group=self._group)}
        return {name: point for name, point in found.items() if name not in self._builtin}

    def __getitem__(self, name: str) -> Part:
        if name in self._builtin:
            return self._builtin[name]
        if name not in self._installed:
            raise KeyError(name)
        if name not in self._loaded:
            point = self._installed[name]
            try:
                part: Part = point.load()
                self._check(part)
            except Exception as problem:
                reason = f"{type(problem).__name__}: {problem}"
                remedy = f"cannot be loaded from {point.value} ({reason}): fix that package."
                raise BadInput(self._kind, name, remedy) from problem
            self._loaded[name] = part
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._builtin
        yield from self._installed

    def __len__(self) -> int:
        return len(self._builtin) + len(self._installed)

    def find(self, name: str, field: str | None = None) -> Part:
        """The part of that name; ``field`` is what an error calls it, else the registry's kind.

        Raises:
            BadInput: there is none; the message lists all names.
        """
        try:
            return self[name]
        except KeyError:
            choices = ", ".join(self)
            raise BadInput(field or self._kind, name, f"choose one of: {choices}.") from None
