"""Scenario keys: read off the schema and the two presets."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

from pydantic import BaseModel

from _reference import code, page, table
from noisemarket.federated.partition import MINIMUM
from noisemarket.files import DEEPEST
from noisemarket.game.distributions import DISTRIBUTIONS
from noisemarket.game.levels import MOST_CELLS
from noisemarket.ledger.money import MICRO, MOST
from noisemarket.pricing.mechanism import MOST_POINTS
from noisemarket.scenario import SYMBOLS, Scenario
from noisemarket.scenario.explain import allowed_values
from noisemarket.scenario.population_file import LONGEST_NAME
from noisemarket.scenario.schema import ChangeSection

INTRO = """\
[Write your own scenario](../how-to/scenario.md) says how a file looks and what `--set` takes.
Unknown keys, NaN and infinity are refused. "Symbol" is the paper's, as `--set` understands it;
where the two presets differ, both defaults are given. `noisemarket scenario --explain` prints
the same list."""

SPREAD = """\
`privacy_cost`, `data_size`, `beta` and `markup` are each a number, the same for all owners, or a
table that names a distribution. Each of them has a random stream of its own, and owners are
drawn in order: the first owners of a larger population are those of a smaller one."""

CHANGES = """\
Preferences that change while the game is played, one `[[changes]]` table each. Owners can change
`privacy_cost`, `markup` and `beta`; the curator can change `quality_weight`, `quality_value` and
`payment_cost`. Scaling comes before setting. Changes build on each other, in the order of `at`.
The learners are not told. Contracts, the equilibrium and the first best are counted under the
preferences at the end."""

LIMITS = f"""\
The tables below have the bounds of each key. Besides:

- `(game.saving_levels + 1) (game.payment_levels + 1)`: at most {MOST_CELLS:,}.
- Owners who train: at most one per {MINIMUM} training records.
- Names of owners: printable, at most {LONGEST_NAME} characters.
- Points of a trace: at most {MOST_POINTS:,}; a longer run has more iterations per point.
- Money: at most {MOST // MICRO:,} units, in steps of {1 / MICRO:g}.
- Scenario, owner and surface files: nested at most {DEEPEST} deep."""


def scenario_page() -> str:
    """All keys, section by section; then distributions and changes."""
    presets = {name: Scenario.from_preset(name) for name in ("market", "paper")}
    schema = Scenario.model_json_schema()
    kinds = Scenario.model_fields
    top = [name for name, field in kinds.items() if not _is_section(field.annotation)]
    parts = [INTRO, "## Limits", LIMITS]
    parts += ["## Top level", _keys("", top, schema["properties"], presets)]
    for name, field in kinds.items():
        if not _is_section(field.annotation):
            continue
        inside = schema["$defs"][field.annotation.__name__]["properties"]
        held = {preset: getattr(scenario, name) for preset, scenario in presets.items()}
        parts += [f"## {name}", _keys(f"{name}.", list(inside), inside, held)]
    parts += ["## Distributions", SPREAD, _distributions()]
    parts += ["## Changes", CHANGES, _list_of("changes", ChangeSection)]
    return page("Scenario keys", *parts)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _keys(prefix: str, names: list[str], schema: dict[str, Any], held: dict[str, Any]) -> str:
    allowed = allowed_values(type(held["market"]))
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    rows = []
    for name in names:
        market, paper = (_value(getattr(held[preset], name)) for preset in ("market", "paper"))
        default = market if market == paper or name == "preset" else f"{market} (`paper`: {paper})"
        about = schema[name]
        symbol = symbols.get(name, "")
        meaning = _meaning(about).removeprefix(f"{symbol}: ")
        rows.append((code(prefix + name), _coded(allowed[name]), default, code(symbol), meaning))
    return table(("key", "value", "default", "symbol", "meaning"), rows)


def _meaning(about: dict[str, Any]) -> str:
    return re.sub(r"(\[\[\w+\]\])", r"`\1`", about.get("description", ""))


def _list_of(prefix: str, kind: type[BaseModel]) -> str:
    rows, allowed = [], allowed_values(kind)
    for name, about in kind.model_json_schema()["properties"].items():
        field = kind.model_fields[name]
        default = "required" if field.is_required() else _value(field.default)
        key = code(f"{prefix}.{name}")
        rows.append((key, _coded(allowed[name]), default, _meaning(about)))
    return table(("key", "value", "default", "meaning"), rows)


def _distributions() -> str:
    rows = []
    for name, kind in DISTRIBUTIONS.items():
        shown = []
        for field in fields(kind):  # type: ignore[arg-type]
            factory = field.default_factory is not MISSING
            optional = "" if field.default is MISSING else f" ({_value(field.default)})"
            shown.append(code(field.name) + (" (optional)" if factory else optional))
        rows.append((code(name), ", ".join(shown), (kind.__doc__ or "").replace("``", "`")))
    return table(("`distribution`", "parameters (default)", "meaning"), rows)


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


def _coded(words: str) -> str:
    """Names that can be given, as code; words that say what can be given, as they are."""
    plain = ("number", "whole", "text", "table", "list", "2 whole")
    parts = words.split(" or ")
    if words.endswith("or more") or (len(parts) == 1 and parts[0].startswith(plain)):
        return words
    return ", ".join(one if one.startswith(plain) else code(one) for one in parts)


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value}"
