"""Python names, market events and errors: read off the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import noisemarket
from _reference import code, items, page, plain, sentence
from noisemarket.market import events

PYTHON = """\
Look up what `import noisemarket as nm` offers; [your first study](../tutorial/first-study.md) is
the way in. Parts load when they are first used. The site shows each name's signature, arguments
and example [below](#the-names); in Python, `help(nm.train)` does."""

EVENTS = """\
`nm.run_market` yields these; `curator/events.jsonl` has them as JSON. Each is on the ledger
before it is sent. Amounts are whole micro-units; rounds count from 1."""

EXITS = """\
- 0: done.
- 1: `audit` found a breach, or `ledger verify` a ledger that is not sound. Otherwise something
  outside stopped the command, such as a full disk: one sentence on standard error.
- 2: bad input: one sentence with the field, the value and the remedy, before a run folder is
  made.
- 130: interrupted by Ctrl-C or SIGTERM; finished work [is
  kept](../how-to/operate.md#resume-after-a-crash).

`noisemarket negotiate --set discount=1` prints `noisemarket: learning.discount is 1: give a
number from 0 to below 1.` and ends with 2. Every error that noisemarket raises on purpose is a
`NoisemarketError`:"""


def python_page() -> str:
    """The public names, documented by mkdocstrings on the site and listed on GitHub."""
    homes = noisemarket._HOMES
    names = sorted(noisemarket.__all__, key=lambda name: (homes[name], name))
    listed = ", ".join(code(f"nm.{name}") for name in names)
    blocks = "\n\n".join(f"::: {homes[name]}.{name}" for name in names)
    parts = [*_events(), *_errors(), "## The names", f"{listed}.", blocks]
    return page("Python", PYTHON, *parts)


def _events() -> list[str]:
    """The events of a market with their fields."""
    rows = []
    for kind in events.Event.__subclasses__():
        named = ", ".join(code(field.name) for field in fields(kind))
        rows.append((f"`{kind.__name__}` ({named})", plain(kind.__doc__)))
    return ["## Events", EVENTS, items(rows)]


def _errors() -> list[str]:
    """Exit codes, and the errors that a user of the library can meet."""
    found = {name: (base, text) for name, base, text in _classes()}
    rows = [
        (code(name) + (f" ({code(base)})" if base not in TOP else ""), text)
        for name, (base, text) in sorted(found.items())
        if name not in TOP and _is_error(name, found)
    ]
    return ["## Errors and exit codes", EXITS, items(rows)]


TOP = ("NoisemarketError", "Exception")


def _classes() -> Iterator[tuple[str, str, str]]:
    """Every class outside the dashboard, its first base and first sentence, by its source."""
    root = Path(noisemarket.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "dashboard" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ClassDef)
                and node.bases
                and isinstance(node.bases[0], ast.Name)
            ):
                yield node.name, node.bases[0].id, sentence(ast.get_docstring(node))


def _is_error(name: str, found: dict[str, tuple[str, str]]) -> bool:
    while name in found:
        if name == "NoisemarketError":
            return True
        name = found[name][0]
    return False
