"""Python names and market events: read off the code."""

from __future__ import annotations

from dataclasses import fields

import noisemarket
from _reference import code, items, page, plain
from noisemarket.market import events

PYTHON = """\
Look up what `import noisemarket as nm` offers; [From the paper](../tutorial/first-study.md) is
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

Every error that noisemarket raises on purpose is a
`NoisemarketError`: bad input a `BadInput`, a ledger that cannot be read, written or trusted a
`LedgerError`, Ctrl-C an `Interrupted`."""


def python_page() -> str:
    """Events, exit codes, and the public names, documented by mkdocstrings on the site."""
    homes = noisemarket._HOMES
    names = sorted(noisemarket.__all__, key=lambda name: (homes[name], name))
    blocks = "\n\n".join(f"::: {homes[name]}.{name}" for name in names)
    parts = [*_events(), "## Errors and exit codes", EXITS, "## The names", blocks]
    return page("Python", PYTHON, *parts)


def _events() -> list[str]:
    """The events of a market with their fields."""
    rows = []
    for kind in events.Event.__subclasses__():
        named = ", ".join(code(field.name) for field in fields(kind))
        rows.append((f"`{kind.__name__}` ({named})", plain(kind.__doc__)))
    return ["## Events", EVENTS, items(rows)]
