"""``noisemarket scenario``: scenarios in full, and every key explained."""

from __future__ import annotations

from pydantic import BaseModel
from rich.markup import escape
from rich.table import Table

from noisemarket.cli.app import ScenarioOptions
from noisemarket.cli.common import console
from noisemarket.scenario import SYMBOLS, Scenario, dump_scenario
from noisemarket.scenario.schema import ChangeSection
from noisemarket.scenario.section import allowed_values

Row = tuple[str, str, str, str]

LISTED: dict[str, type[BaseModel]] = {
    "changes": ChangeSection,
}
"""Tables that a scenario may have any number of times."""


def run(options: ScenarioOptions) -> None:
    """Print the scenario as TOML, or every key with its value, what it may be, and its meaning."""
    scenario = options.load()
    if not options.explain:
        print(dump_scenario(scenario), end="")
        return
    table = Table("key", "value", "allowed", "meaning", box=None, pad_edge=False)
    for row in keys(scenario):
        table.add_row(*map(escape, row))
    console().print(table)


def keys(scenario: Scenario) -> list[Row]:
    """Key, value, what it may be, and meaning (with the paper's symbol) of every setting."""
    rows = _keys("", Scenario, scenario)
    for prefix, kind in LISTED.items():
        rows += _keys(f"{prefix}.", kind)
    return rows


def _keys(prefix: str, kind: type[BaseModel], section: BaseModel | None = None) -> list[Row]:
    """The same of a section, or, with their defaults, of a table that there may be many of."""
    rows, allowed = [], allowed_values(kind)
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    for name, field in kind.model_fields.items():
        default = "" if field.is_required() else field.default
        value = default if section is None else getattr(section, name)
        if isinstance(value, BaseModel):
            rows += _keys(f"{name}.", type(value), value)
            continue
        meaning, symbol = field.description or "", symbols.get(name)
        if symbol is not None and not meaning.startswith(f"{symbol}:"):
            meaning = f"{symbol}: {meaning}"
        rows.append((prefix + name, _shown(value), allowed[name], meaning))
    return rows


def _shown(value: object) -> str:
    """A value as a scenario file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {_shown(one)}" for name, one in value.items())
        return f"{{{inside}}}" if value else ""
    if isinstance(value, BaseModel):
        return _shown(value.model_dump())
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shown, value))}]" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)
