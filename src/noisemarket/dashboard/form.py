"""The form that starts a run: which settings it has, what they mean, and what they must be.

Defaults, limits and meanings are the scenario's own; nothing is written down a second time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.mechanisms import MECHANISMS, find_mechanism
from noisemarket.report.style import name_of
from noisemarket.scenario import SYMBOLS, Scenario, load_scenario

GROUPS: dict[str, dict[str, str]] = {
    "The market": {
        "mechanism": "Mechanism",
        "population.owners": "Owners",
        "market.budget": "Budget",
        "market.target_accuracy": "Target accuracy",
        "market.floor": "Floor",
        "game.payment_max": "Highest payment",
    },
    "Who the owners are": {
        "population.privacy_cost.low": "Lowest privacy cost",
        "population.privacy_cost.high": "Highest privacy cost",
        "population.markup": "Markup",
        "population.beta": "Non-IID degree",
    },
    "Training and privacy": {
        "training.model": "Model",
        "training.rounds": "Rounds",
        "privacy.protection": "Protection",
        "game.sigma_max": "Noise without a trade",
        "privacy.noise": "Source of the noise",
    },
    "What the curator wants": {
        "game.quality_weight": "Weight of quality",
        "learning.iterations": "Iterations of the game",
        "seed": "Seed",
    },
}
"""The settings of the form and what they are called there. None of them names a file."""

_LOW_HIGH = {
    "population.privacy_cost.low": "lowest unit privacy cost that an owner may have, its secret",
    "population.privacy_cost.high": "highest unit privacy cost that an owner may have, its secret",
}

KEYS = tuple(key for group in GROUPS.values() for key in group)


def form(preset: str) -> dict[str, Any]:
    """The form, filled in with the values of a preset.

    Raises:
        BadInput: there is no such preset.
    """
    scenario = load_scenario(preset=preset)
    return {
        "preset": preset,
        "groups": [
            {"title": title, "fields": [_field(key, name, scenario) for key, name in keys.items()]}
            for title, keys in GROUPS.items()
        ],
    }


def checked_settings(preset: str, settings: Mapping[str, Any]) -> list[str]:
    """Settings as words for ``--set``, refused as the command line refuses them.

    Raises:
        BadInput: a setting is not one of the form, or its value cannot be used.
    """
    words = []
    for key, value in settings.items():
        if key not in KEYS:
            raise BadInput(key, value, f"is not on this form: {', '.join(KEYS)}.")
        if isinstance(value, str) and (len(value) > 100 or not value.isprintable()):
            raise BadInput(key, value, "give a short text.")
        words.append(f"{key}={json.dumps(value)}")
    scenario = load_scenario(preset=preset, settings=words)
    find_mechanism(scenario.mechanism)
    scenario.population.distributions()
    return words


def _field(key: str, name: str, scenario: Scenario) -> dict[str, Any]:
    last = key.rpartition(".")[2]
    info, value = _info(key), _value(scenario, key)
    described = _LOW_HIGH.get(key) or (info.description if info else "") or ""
    symbols = {field: symbol for symbol, field in SYMBOLS.items()}
    found: dict[str, Any] = {
        "key": key,
        "name": name,
        "symbol": symbols.get(last),
        "value": value,
        "help": described,
        "choices": _choices(key, info),
        "kind": "text",
        "min": None,
        "max": None,
    }
    number = key in _LOW_HIGH or (info is not None and _is_number(info.annotation))
    if found["choices"]:
        found["kind"] = "choice"
    elif number:
        found["kind"] = "integer" if info is not None and info.annotation is int else "number"
        found["or_none"] = info is not None and "none" in _literals(info.annotation)
        found |= _limits(info)
    return found


def _info(key: str) -> FieldInfo | None:
    """What the scenario says of a field; None for what is inside of a distribution."""
    model: type[BaseModel] = Scenario
    *path, last = key.split(".")
    for step in path:
        kind = model.model_fields[step].annotation
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return None
        model = kind
    return model.model_fields[last]


def _value(scenario: Scenario, key: str) -> Any:
    value: Any = scenario
    for step in key.split("."):
        value = value[step] if isinstance(value, Mapping) else getattr(value, step)
    return value


def _choices(key: str, info: FieldInfo | None) -> list[dict[str, str]]:
    if key == "mechanism":
        return [
            {"value": name, "name": name_of(name), "help": f"knows {find_mechanism(name).knows}"}
            for name in MECHANISMS
        ]
    if key == "privacy.protection":
        return [{"value": name, "name": name, "help": ""} for name in PROTECTIONS]
    literals = _literals(info.annotation) if info is not None else []
    if info is not None and not _is_number(info.annotation):
        return [{"value": str(one), "name": str(one), "help": ""} for one in literals]
    return []


def _parts(kind: Any) -> list[Any]:
    """A type and all that it is made of."""
    return [kind, *(part for inner in get_args(kind) for part in _parts(inner))]


def _is_number(kind: Any) -> bool:
    return any(part in (int, float) for part in _parts(kind))


def _literals(kind: Any) -> list[Any]:
    return [one for part in _parts(kind) if get_origin(part) is Literal for one in get_args(part)]


def _limits(info: FieldInfo | None) -> dict[str, float | None]:
    """The least and the greatest number that a field takes."""
    marks = [] if info is None else [*info.metadata, *_parts(info.annotation)]
    flat = [one for mark in marks for one in (mark, *getattr(mark, "metadata", ()))]
    low: float | None = None if info is not None else 0.0
    high: float | None = None
    for mark in flat:
        if isinstance(mark, annotated_types.Ge | annotated_types.Gt):
            low = float(getattr(mark, "ge", getattr(mark, "gt", 0.0)))
        elif isinstance(mark, annotated_types.Le | annotated_types.Lt):
            high = float(getattr(mark, "le", getattr(mark, "lt", 0.0)))
    return {"min": low, "max": high if high is None or high < 1e9 else None}
