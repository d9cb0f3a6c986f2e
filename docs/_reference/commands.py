"""Commands: read off typer's tree."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import typer

from _reference import code, page, table
from noisemarket.cli.app import app

INTRO = """\
Every command takes `--help` (short: `-h`). `noisemarket --version` prints the version. Progress
goes to standard error, and only to a terminal; `run` also prints a line per round where there is
no terminal. [Exit codes](errors.md#exit-codes) are the same for all commands. [Scenario files
and `--set`](../how-to/scenario.md) have a page of their own."""


def commands_page() -> str:
    """All commands with their arguments and options."""
    found = list(_commands(typer.main.get_command(app), "noisemarket"))
    links = [(f"[`{name}`](#{name.replace(' ', '-')})", _first(command)) for name, command in found]
    parts = [INTRO, table(("command", "what it does"), links)]
    for name, command in found:
        parts += [f"## {name}", _text(command.help), *_parameters(name, command)]
    return page("Commands", *parts)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _parameters(name: str, command: Any) -> Iterator[str]:
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
    yield "```text\n" + " ".join([*usage, *(["[OPTIONS]"] if options else [])]) + "\n```"
    yield table(("argument or option", "default", "meaning"), rows)


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
