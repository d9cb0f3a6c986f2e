"""Scenario keys: read off the schema and the two presets."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

from pydantic import BaseModel

from _reference import code, items, page, plain
from _reference.surfaces import surfaces
from noisemarket.game.population import DISTRIBUTIONS
from noisemarket.scenario import SYMBOLS, Scenario
from noisemarket.scenario.schema import ChangeSection

INTRO = """\
Look up a key here, or print this list: `noisemarket scenario --explain`. [Write your own
scenario](../how-to/scenario.md) says how a file looks and what `--set` takes. Each line has the
key, its default, in brackets the paper's symbol (which `--set` understands), and its meaning;
`--explain` also has the bounds. Unknown keys, NaN and infinity are refused."""

SPREAD = """\
`privacy_cost`, `data_size`, `beta`, `markup` and `floor` are each a number, the same for all
owners, or a table that names a distribution. Each has a random stream of its own, and owners are
drawn in order: the first owners of a larger population are those of a smaller one."""

CHANGES = """\
Preferences that change while the game is played, one `[[changes]]` table each, in the order of
`at`. Owners can change `privacy_cost`, `markup` and `beta`; the curator `quality_weight`,
`quality_value` and `payment_cost`. Scaling comes before setting. The learners are not told.
Contracts and exact answers are counted under the preferences at the end."""


def scenario_page() -> str:
    """All keys, section by section; then distributions, changes and surfaces."""
    presets = {name: Scenario.from_preset(name) for name in ("market", "paper")}
    kinds = Scenario.model_fields
    top = [name for name, field in kinds.items() if not _is_section(field.annotation)]
    parts = [INTRO, "## Top level", _keys("", Scenario, presets, top)]
    for name, field in kinds.items():
        if _is_section(field.annotation):
            held = {preset: getattr(scenario, name) for preset, scenario in presets.items()}
            parts += [f"## {name}", _keys(f"{name}.", field.annotation, held)]
    parts += ["## Distributions", SPREAD, _distributions()]
    parts += ["## Changes", CHANGES, _keys("changes.", ChangeSection)]
    return page("Scenario keys", *parts, *surfaces())


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _keys(
    prefix: str,
    kind: Any,
    held: dict[str, Any] | None = None,
    names: list[str] | None = None,
) -> str:
    """A line for each key; without ``held``, of a table that there may be many of."""
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    rows = []
    for name in names or kind.model_fields:
        field = kind.model_fields[name]
        if held is None:
            default = "required" if field.is_required() else _value(field.default)
        else:
            market, paper = (_value(getattr(held[one], name)) for one in ("market", "paper"))
            same = market == paper or name == "preset"
            default = market if same else f"{market}, in `paper` {paper}"
        symbol = symbols.get(name, "")
        meaning = re.sub(r"(\[\[\w+\]\])", r"`\1`", field.description or "")
        shown = f"{code(prefix + name)} = {default}" + (f" ({code(symbol)})" if symbol else "")
        rows.append((shown, meaning.removeprefix(f"{symbol}: ")))
    return items(rows)


def _distributions() -> str:
    rows = []
    for name, kind in DISTRIBUTIONS.items():
        shown = []
        for field in fields(kind):  # type: ignore[arg-type]
            factory = field.default_factory is not MISSING
            optional = "" if field.default is MISSING else f" ({_value(field.default)})"
            shown.append(code(field.name) + (" (optional)" if factory else optional))
        rows.append((f"{code(name)} with {', '.join(shown)}", plain(kind.__doc__)))
    return items(rows)


def _value(value: Any) -> str:
    if value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, dict):
        return code("{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}")
    if isinstance(value, tuple):
        return code(f"[{', '.join(map(str, value))}]")
    if isinstance(value, int | float):
        return (
            "none" if abs(value) >= 10**9 else f"{value:g}" if abs(value) < 1000 else f"{value:,}"
        )
    return code(value)


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value}"
