"""How many settings a user can meet: scenario keys and command options, each counted once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from noisemarket.cli.app import app
from noisemarket.scenario import Scenario
from noisemarket.scenario.explain import explained


def scenario_keys() -> list[str]:
    """Every key of a scenario; a table that may be given many times counts by its keys."""
    names = [row[0] for row in explained(Scenario())]
    tables = {name.partition(".")[0] for name in names if "." in name}
    return [name for name in names if name not in tables]


def command_options() -> list[str]:
    """Every option by its name, once for all commands of noisemarket; of Flower's apart."""
    found = dict.fromkeys(_options(typer.main.get_command(app), ""))
    return [name for name in found if not name.startswith("flower ")]


def flower_options() -> list[str]:
    """The options of ``noisemarket flower`` that no other command has."""
    known = set(command_options())
    found = dict.fromkeys(_options(typer.main.get_command(app), ""))
    own = (name.removeprefix("flower ") for name in found if name.startswith("flower "))
    return [name for name in own if name not in known]


def _options(command: Any, group: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _options(inner, "flower " if name == "flower" else group)
        return
    for one in command.params:
        if one.param_type_name == "option" and one.name != "help":
            yield group + one.opts[0]


def count() -> str:
    """The counts, one line each."""
    kinds = {
        "scenario keys": scenario_keys(),
        "command options": command_options(),
        "Flower options": flower_options(),
    }
    lines = [f"{len(names):4} {kind}: {', '.join(names)}" for kind, names in kinds.items()]
    return "\n".join([*lines, f"{sum(map(len, kinds.values())):4} settings"])
