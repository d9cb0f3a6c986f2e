"""Python names, market events and errors: read off the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import noisemarket
from _reference import code, page, table
from noisemarket.market import events

PYTHON = """\
Everything here is imported by `import noisemarket as nm`; the parts are loaded when they are
first used. [Your first study in Python](../tutorial/first-study.md) is the way in."""

EVENTS = """\
`nm.run_market` yields one object per thing that happens (`market/events.py`). What an event
tells is on the ledger before the event is sent. Amounts are whole micro-units; rounds count from
1."""

EXITS = """\
| code | when |
| --- | --- |
| 0 | done |
| 1 | `audit`: a breach was found, or a control went wrong. `ledger verify`: the ledger is not sound. Otherwise something outside stopped the command, such as a full disk: one sentence on standard error |
| 2 | bad input: one sentence with the field, the value and the remedy |
| 130 | interrupted by Ctrl-C or SIGTERM; finished work is kept ([what is kept](../how-to/operate.md#resume-after-a-crash)) |

For example, `noisemarket negotiate --set discount=1` prints `noisemarket: learning.discount is 1:
give a number from 0 to below 1.` and ends with 2. Bad input is found before a run folder is created.

All errors that noisemarket raises on purpose derive from `NoisemarketError`."""  # noqa: E501


def python_page() -> str:
    """The public names, documented by mkdocstrings on the site and listed on GitHub."""
    homes = noisemarket._HOMES
    names = sorted(noisemarket.__all__, key=lambda name: (homes[name], name))
    rows = [(code(f"nm.{name}"), _sentence(name)) for name in names]
    blocks = [f"::: {homes[name]}.{name}" for name in names]
    listed = table(("name", "what it is"), rows)
    return page("Python", PYTHON, listed, *_events(), *_errors(), "## The names", *blocks)


def _sentence(name: str) -> str:
    found = getattr(noisemarket, name)
    if not callable(found) and not isinstance(found, ModuleType):  # a constant
        return f"{len(found)} parts by name"
    return _text(found.__doc__).partition(". ")[0].removesuffix(".")


def _events() -> list[str]:
    """The events of a market with their fields."""
    rows = []
    for kind in events.Event.__subclasses__():
        named = ", ".join(code(field.name) for field in fields(kind))
        rows.append((code(kind.__name__), _text(kind.__doc__), named))
    return ["## Events", EVENTS, table(("event", "when", "fields"), rows)]


def _errors() -> list[str]:
    """Exit codes, and the tree of errors."""
    found = {name: (base, text) for name, base, text in _classes()}
    tree = [(code(name), code(base), text) for name, (base, text) in sorted(found.items())
            if _is_error(name, found)]  # fmt: skip
    return ["## Errors and exit codes", EXITS, table(("error", "is a", "when"), tree)]


def _classes() -> Iterator[tuple[str, str, str]]:
    """Every class of the package with its first base and first sentence, without importing it."""
    for path in sorted(Path(noisemarket.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ClassDef)
                and node.bases
                and isinstance(node.bases[0], ast.Name)
            ):
                text = _text(ast.get_docstring(node)).partition(". ")[0].removesuffix(".")
                yield node.name, node.bases[0].id, text


def _is_error(name: str, found: dict[str, tuple[str, str]]) -> bool:
    while name in found:
        if name == "NoisemarketError":
            return True
        name = found[name][0]
    return False


def _text(text: str | None) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join((text or "").split()))
