"""The keys of a scenario in words: values, what they may be, meanings, and what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from noisemarket.errors import BadInput
from noisemarket.scenario.schema import LARGEST, SYMBOLS, ChangeSection, Scenario, Section

Row = tuple[str, str, str, str]


@cache
def key_paths() -> dict[str, tuple[str, ...]]:
    """The path of a field by each of its names."""
    paths: dict[str, tuple[str, ...]] = {}
    for name, info in Scenario.model_fields.items():
        paths[name] = (name,)
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            for inner in kind.model_fields:
                paths[f"{name}.{inner}"] = paths[inner] = (name, inner)
    return paths | {name: paths[field] for name, field in SYMBOLS.items()}


def unknown_key(key: str, value: object) -> BadInput:
    """The error for an unknown key, with the one that was probably meant."""
    paths = key_paths()
    table, _, name = key.rpartition(".")
    inside = [one.rpartition(".")[2] for one in paths if one.startswith(f"{table}.")]
    if name in paths:
        close = [".".join(paths[name])]
    elif inside:
        close = [f"{table}.{one}" for one in difflib.get_close_matches(name, inside, n=1)]
    else:
        alike = [one for one in paths if ("." in one) is ("." in key)]
        close = difflib.get_close_matches(key, alike, n=1)
    hint = f"did you mean {close[0]}?" if close else "remove it."
    return BadInput(key, value, f"unknown key, {hint}")


def in_plain_words(problem: ValidationError) -> BadInput:
    """The first error of pydantic, as BadInput in plain words."""
    first = problem.errors()[0]
    path = [part for part in first["loc"] if not _is_kind(part)]
    field, said = ".".join(map(str, path)), first["msg"]
    match first["type"]:
        case "value_error":
            remedy = said.removeprefix("Value error, ")
        case "extra_forbidden":
            return unknown_key(field, first["input"])
        case "missing":
            remedy = f"add {path[-1]}, which is required"
        case "finite_number":
            remedy = "give a finite number"
        case _:
            allowed = _allowed(path)
            remedy = f"give {allowed}" if allowed else said.replace("Input should be", "give one")
    return BadInput(field, first["input"], f"{remedy}.")


def _allowed(path: Sequence[str | int]) -> str:
    """What the field at the end of a path may be, in words; empty inside of a field's value."""
    kind: type[BaseModel] = Scenario
    for number, part in enumerate(path):
        if isinstance(part, int):
            continue
        inner = kind.model_fields[part].annotation
        if number == len(path) - 1:
            return allowed_values(kind)[part]
        types = [one for one in (inner, *get_args(inner)) if isinstance(one, type)]
        sections = [one for one in types if issubclass(one, Section)]
        if not sections:
            return ""
        (kind,) = sections
    return ""


def _is_kind(part: object) -> bool:
    """Pydantic adds the branch of a union to the location: not a name that users know."""
    kinds = ("float", "int", "str", "bool")
    return isinstance(part, str) and (
        part in kinds or part.startswith("constrained-") or part.endswith("]")
    )


def allowed_values(section: type[BaseModel]) -> dict[str, str]:
    """Each key of a section, and what it may be, such as ``a whole number from 1 to 256``."""
    about = section.model_json_schema().get("properties", {})
    return {name: _words(about.get(name, {})) for name in section.model_fields}


def _words(about: Mapping[str, Any]) -> str:
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(_words(one) for one in about["anyOf"]))
    if "enum" in about:
        return " or ".join(about["enum"])
    if "const" in about:
        return str(about["const"])
    kind = about.get("type", "object")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(about)
    if kind == "array" and "prefixItems" in about:
        return f"{len(about['prefixItems'])} whole numbers{_bounds(about['prefixItems'][0])}"
    plain = {"string": "a text", "boolean": "true or false", "object": "a table", "array": "a list"}
    return plain[kind]


def _bounds(about: Mapping[str, Any]) -> str:
    low, above = about.get("minimum"), about.get("exclusiveMinimum")
    high, below = about.get("maximum"), about.get("exclusiveMaximum")
    high = None if high is not None and high >= LARGEST else high
    words = []
    if above is not None:
        words.append(f"above {above:g}")
    if low is not None:
        words.append(f"of at least {low:g}" if high is None and below is None else f"from {low:g}")
    if high is not None:
        words.append(f"to {_number(high)}" if low is not None else f"and at most {_number(high)}")
    if below is not None:
        words.append(f"{'to' if low is not None else 'and'} below {_number(below)}")
    return "".join(f" {word}" for word in words)


def _number(value: float) -> str:
    if value == 1 << 63:
        return "2^63"
    if value == int(value) and value < 1e15:
        return f"{int(value):,}"
    return f"{value:g}".replace("e+", "e")


def explained(scenario: Scenario) -> list[Row]:
    """Key, value, what it may be, and meaning (with the paper's symbol) of every setting."""
    rows = _keys("", Scenario, scenario)
    return rows + _keys("changes.", ChangeSection)


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
