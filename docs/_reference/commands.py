"""Commands: read off typer's tree."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

import typer

from _reference import code, items, page, plain
from noisemarket.cli.app import app

INTRO = """\
Look up which command does what; `noisemarket COMMAND --help` explains each option. `noisemarket
--install-completion` completes commands in your shell. Progress goes to standard error. [Exit
codes](python.md#errors-and-exit-codes) are the same for all commands; [scenario
files](../how-to/scenario.md) say what `--set` takes."""


def commands_page() -> str:
    """The options that many commands have, with their meanings; then all commands, with theirs."""
    found = list(_commands(typer.main.get_command(app), "noisemarket"))
    described = {name: _parameters(name, command) for name, command in found}
    seen = Counter(row for _, rows in described.values() for row in rows)
    shared = [row for row in seen if seen[row] > 1]
    parts = [INTRO, "## Options of several commands", *_shared(shared)]
    lines = []
    for name, command in found:
        usage, rows = described[name]
        options = [row for row in rows if row[0].startswith("`-")]
        names = {row: re.sub(r" [^`]+`", "`", row[0]) for row in options}
        own = [name for row, name in names.items() if row not in shared]
        takes = ", ".join([*own, *_grouped([names[row] for row in options if row in shared])])
        lines.append((code(usage), plain(command.help) + (f" Takes {takes}." if takes else "")))
    return page("Commands", *parts, "## All commands", items(lines))


def _shared(rows: Sequence[tuple[str, str]]) -> list[str]:
    """The options that several commands have, group by group."""
    named = {re.sub(r"`([^` ]+).*", r"\1", row[0]): row for row in rows}
    parts, left = [], dict(named)
    for group, some in GROUPS.items():
        parts += [f"{group}:", items(left.pop(name) for name in some if name in left)]
    return [*parts, "*others*:", items(left.values())]


GROUPS = {
    "*scenario*": ("--preset", "--set", "--seed"),
    "*deal*": ("--mechanism", "--budget", "--target-accuracy"),
    "*folder*": ("--out", "--overwrite", "--workers", "--json"),
}
"""Options that mostly come together, by what a page calls them."""


def _grouped(names: Sequence[str]) -> list[str]:
    """Options by name, and those of a group that is there as a whole by its name."""
    left, shown = list(names), []
    for group, some in GROUPS.items():
        own = [code(name) for name in some]
        if set(own) <= set(left):
            shown.append(group)
            left = [name for name in left if name not in own]
    return shown + left


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _parameters(name: str, command: Any) -> tuple[str, list[tuple[str, str]]]:
    """How a command is called; its arguments and options with their meanings."""
    known = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    rows, usage = [], [name]
    for one in command.params:
        if one.param_type_name != "option":  # typer 0.20 forgets an argument's help on click 8.5
            about = known[one.name].__metadata__[0]
            word = about.metavar or one.name.upper()
            usage.append(word if one.required or word[0] == "[" else f"[{word}]")
            rows.append((code(word), plain(about.help)))
        elif not one.hidden:
            rows.append((_names(one), plain(one.help) + _default(one)))
    return " ".join(usage), rows


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.type.name.split()[0].upper()}"
    named = [*option.opts, *option.secondary_opts]
    return ", ".join(code(name + value) for name in named)


def _default(option: Any) -> str:
    given = option.default
    if given in (None, "") or option.is_flag or option.multiple:
        return ""
    return f" Default {code(f'{given:g}' if isinstance(given, float) else given)}."
