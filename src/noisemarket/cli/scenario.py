"""``noisemarket scenario``: scenarios in full, and every key explained."""

from __future__ import annotations

from pydantic import BaseModel
from rich.markup import escape
from rich.table import Table

from noisemarket.cli.common import console
from noisemarket.scenario import SYMBOLS, Scenario, dump_scenario, load_scenario
from noisemarket.scenario.schema import ChangeSection


def show(file: str | None, preset: str | None, settings: list[str] | None) -> None:
    """Print the resolved scenario as TOML."""
    print(dump_scenario(load_scenario(file, preset=preset, settings=settings or [])), end="")


def explain_keys() -> None:
    """Print every key with its default, the paper's symbol and its meaning."""
    table = Table("key", "default", "symbol", "meaning", box=None, pad_edge=False)
    for row in (*keys(), *change_keys()):
        table.add_row(*map(escape, row))
    console().print(table)


def keys() -> list[tuple[str, str, str, str]]:
    """Key, default, symbol and meaning of every setting."""
    return _keys("", Scenario)


def change_keys() -> list[tuple[str, str, str, str]]:
    """The same for one change of preferences."""
    return _keys("changes.", ChangeSection)


def _keys(prefix: str, model: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    rows = []
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += _keys(f"{name}.", kind)
            continue
        default = "" if info.is_required() else str(info.default)
        rows.append((prefix + name, default, symbols.get(name, ""), info.description or ""))
    return rows
