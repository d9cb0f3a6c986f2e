"""Scenario keys: read off the schema and the two presets."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

from pydantic import BaseModel

from _reference import code, page, table
from noisemarket.game.distributions import Distributions
from noisemarket.scenario import SYMBOLS, Scenario
from noisemarket.scenario.schema import ChangeSection, FaultSection

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

FAULTS = """\
Owners that break their contracts on purpose, one `[[faults]]` table each; `run` alone reads
them. [Try cheating owners](../how-to/cheating-owners.md) says what becomes of each kind."""

LARGEST = 1e29
"""A bound from here on is there to refuse nonsense and is not worth a word."""


def scenario_page() -> str:
    """All keys, section by section; then distributions, changes and faults."""
    presets = {name: Scenario.from_preset(name) for name in ("market", "paper")}
    schema = Scenario.model_json_schema()
    kinds = Scenario.model_fields
    top = [name for name, field in kinds.items() if not _is_section(field.annotation)]
    parts = [INTRO, "## Top level", _keys("", top, schema["properties"], presets)]
    for name, field in kinds.items():
        if not _is_section(field.annotation):
            continue
        inside = schema["$defs"][field.annotation.__name__]["properties"]
        held = {preset: getattr(scenario, name) for preset, scenario in presets.items()}
        parts += [f"## {name}", _keys(f"{name}.", list(inside), inside, held)]
    parts += ["## Distributions", SPREAD, _distributions()]
    for title, text, kind in (
        ("changes", CHANGES, ChangeSection),
        ("faults", FAULTS, FaultSection),
    ):
        parts += [f"## {title.capitalize()}", text, _list_of(title, kind)]
    return page("Scenario keys", *parts)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _keys(prefix: str, names: list[str], schema: dict[str, Any], held: dict[str, Any]) -> str:
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    rows = []
    for name in names:
        market, paper = (_value(getattr(held[preset], name)) for preset in ("market", "paper"))
        default = market if market == paper or name == "preset" else f"{market} (`paper`: {paper})"
        about = schema[name]
        symbol = symbols.get(name, "")
        meaning = _meaning(about).removeprefix(f"{symbol}: ")
        rows.append((code(prefix + name), _type(about), default, code(symbol), meaning))
    return table(("key", "value", "default", "symbol", "meaning"), rows)


def _meaning(about: dict[str, Any]) -> str:
    return re.sub(r"(\[\[\w+\]\])", r"`\1`", about.get("description", ""))


def _list_of(prefix: str, kind: type[BaseModel]) -> str:
    rows = []
    for name, about in kind.model_json_schema()["properties"].items():
        field = kind.model_fields[name]
        default = "required" if field.is_required() else _value(field.default)
        key = code(f"{prefix}.{name}")
        rows.append((key, _type(about), default, _meaning(about)))
    return table(("key", "value", "default", "meaning"), rows)


def _distributions() -> str:
    rows = []
    for name, kind in Distributions.BY_NAME.items():
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


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def _type(about: dict[str, Any]) -> str:
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(_type(one) for one in about["anyOf"]))
    if "enum" in about:
        return " or ".join(code(one) for one in about["enum"])
    if "const" in about:
        return code(about["const"])
    kind = about.get("type", "")
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _bounds(about)
    if kind == "array" and "prefixItems" in about:
        return f"{len(about['prefixItems'])} whole numbers"
    plain = {"string": "text", "boolean": "`true` or `false`", "object": "table", "array": "list"}
    return plain.get(kind, kind)


def _bounds(about: dict[str, Any]) -> str:
    low, above = about.get("minimum"), about.get("exclusiveMinimum")
    high, below = about.get("maximum"), about.get("exclusiveMaximum")
    high = None if high is not None and high >= LARGEST else high
    words = []
    if above is not None:
        words.append(f"above {above:g}")
    if low is not None:
        words.append(f"{low:g} or more" if high is None else f"from {low:g}")
    if high is not None:
        words.append(f"to {high:,}" if isinstance(high, int) else f"to {high:g}")
    if below is not None:
        words.append(f"below {below:g}" if below < 1 << 62 else "")
    shown = " ".join(word for word in words if word)
    return f" {shown}" if shown else ""
