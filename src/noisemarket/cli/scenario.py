"""``noisemarket scenario``: scenarios in full, and every key explained."""

from __future__ import annotations

from pydantic import BaseModel
from rich.table import Table

from noisemarket.cli.common import console
from noisemarket.scenario import SYMBOLS, Scenario, dump_scenario, load_scenario


def show(file: str | None, preset: str | None, settings: list[str] | None) -> None:
    """Print the resolved scenario as TOML."""
    print(dump_scenario(load_scenario(file, preset=preset, settings=settings or [])), end="")


def explain_keys() -> None:
    """Print every key with its default, the paper's symbol and its meaning."""
    table = Table(box=None, pad_edge=False)
    for head in ("key", "default", "symbol", "meaning"):
        table.add_column(head)
    for key, default, symbol, meaning in keys():
        table.add_row(key, default, symbol, meaning)
    console().print(table)


def keys() -> list[tuple[str, str, str, str]]:
    """Key, default, symbol and meaning of every setting."""
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    rows = []

    def add(prefix: str, model: type[BaseModel]) -> None:
        for name, info in model.model_fields.items():
            kind = info.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                add(f"{name}.", kind)
                continue
            shown = "" if info.is_required() else str(info.default)
            rows.append((prefix + name, shown, symbols.get(name, ""), info.description or ""))

    add("", Scenario)
    return rows
