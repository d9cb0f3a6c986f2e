"""Commands: read off typer's tree."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

import typer

from _reference import code, page, table
from noisemarket.cli.app import app

INTRO = """\
Every command takes `--help` (short: `-h`). `noisemarket --version` prints the version. Progress
goes to standard error, and only to a terminal; `run` also prints a line per round where there is
no terminal. [Exit codes](python.md#errors-and-exit-codes) are the same for all commands.
[Scenario files and `--set`](../how-to/scenario.md) have a page of their own."""


Described = tuple[str, str, str]
"""Name, default and meaning of an argument or option."""


def commands_page() -> str:
    """All commands with their arguments and options."""
    found = list(_commands(typer.main.get_command(app), "noisemarket"))
    described = {name: _parameters(name, command) for name, command in found}
    links = [(f"[`{name}`](#{name.replace(' ', '-')})", _first(command)) for name, command in found]
    seen = Counter(row for _, rows in described.values() for row in rows)
    shared = [row for row in seen if seen[row] > 1]
    parts = [INTRO, table(("command", "what it does"), links)]
    parts += ["## Options of several commands", _described(shared)]
    for name, command in found:
        usage, rows = described[name]
        common = ", ".join(re.sub(r" [^`]+`", "`", row[0]) for row in rows if row in shared)
        parts += [f"## {name}", f"```text\n{usage}\n```", _text(command.help).partition(". ")[2]]
        parts += [_described([row for row in rows if row not in shared])]
        parts += [f"And {common} ([above](#options-of-several-commands))."] if common else []
    return page("Commands", *parts)


def _described(rows: Sequence[Described]) -> str:
    return table(("argument or option", "default", "meaning"), rows)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _parameters(name: str, command: Any) -> tuple[str, list[Described]]:
    """How the command is called, and its arguments and options."""
    known = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    rows, usage = [], [name]
    options = [one for one in command.params if one.param_type_name == "option"]
    for one in command.params:
        if one not in options:  # typer 0.20 forgets an argument's help on click 8.5
            about = known[one.name].__metadata__[0]
            word = about.metavar or one.name.upper()
            usage.append(word if one.required else f"[{word}]")
            rows.append((code(word), "", _text(about.help)))
    rows += [(_names(one), _default(one), _text(one.help)) for one in options if not one.hidden]
    return " ".join([*usage, *(["[OPTIONS]"] if options else [])]), rows


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    named = [*option.opts, *option.secondary_opts]
    return ", ".join(code(name + value) for name in named)


def _default(option: Any) -> str:
    if option.default is None or option.default is False or option.multiple:
        return ""
    if option.is_flag:
        return code(option.opts[0])
    return code(f"{option.default:g}" if isinstance(option.default, float) else option.default)


def _text(text: str | None) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join((text or "").split()))


def _first(command: Any) -> str:
    return _text(command.help).partition(". ")[0].removesuffix(".")
