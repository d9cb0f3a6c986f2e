"""``noisemarket scenario``: scenarios in full, and every key explained."""

from __future__ import annotations

from pydantic import BaseModel
from rich.markup import escape
from rich.table import Table

from noisemarket.cli.common import console
from noisemarket.scenario import SYMBOLS, Scenario, dump_scenario, load_scenario
from noisemarket.scenario.allowed import allowed_values
from noisemarket.scenario.schema import ChangeSection, FaultSection
from noisemarket.scenario.training_section import ComparedSection

Row = tuple[str, str, str, str]

LISTED: dict[str, type[BaseModel]] = {
    "changes": ChangeSection,
    "faults": FaultSection,
    "compared": ComparedSection,
}
"""Tables that a scenario may have any number of times."""


def print_scenario(file: str | None, preset: str | None, settings: list[str] | None) -> None:
    """Print the resolved scenario as TOML."""
    print(dump_scenario(load_scenario(file, preset=preset, settings=settings or [])), end="")


def explain_keys(file: str | None, preset: str | None, settings: list[str] | None) -> None:
    """Print every key with its value in this scenario, what it may be, and its meaning."""
    scenario = load_scenario(file, preset=preset, settings=settings or [])
    table = Table("key", "value", "allowed", "meaning", box=None, pad_edge=False)
    for row in keys(scenario):
        table.add_row(*map(escape, row))
    console().print(table)


def keys(scenario: Scenario) -> list[Row]:
    """Key, value, what it may be, and meaning (with the paper's symbol) of every setting."""
    rows = _keys("", scenario)
    for prefix, kind in LISTED.items():
        rows += _defaults(f"{prefix}.", kind)
    return rows


def _keys(prefix: str, section: BaseModel) -> list[Row]:
    rows, allowed = [], allowed_values(type(section))
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            rows += _keys(f"{name}.", value)
        else:
            rows.append((prefix + name, _shown(value), allowed[name], _meaning(section, name)))
    return rows


def _defaults(prefix: str, kind: type[BaseModel]) -> list[Row]:
    """The same for a table that a scenario may have any number of times."""
    allowed = allowed_values(kind)
    return [
        (
            prefix + name,
            "" if field.is_required() else _shown(field.default),
            allowed[name],
            _meaning(kind, name),
        )
        for name, field in kind.model_fields.items()
    ]


def _meaning(section: BaseModel | type[BaseModel], name: str) -> str:
    kind = section if isinstance(section, type) else type(section)
    meaning = kind.model_fields[name].description or ""
    symbol = {field: symbol for symbol, field in SYMBOLS.items()}.get(name)
    return meaning if symbol is None or meaning.startswith(f"{symbol}:") else f"{symbol}: {meaning}"


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
