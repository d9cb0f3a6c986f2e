"""The form that starts a run: which settings it has, what they mean, and what they must be.

Defaults, limits and meanings are the scenario's own; nothing is written down a second time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.data_files import named_records
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.game.population import bad_values
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.scenario import SYMBOLS, Scenario, load_scenario
from noisemarket.show.style import name_of

DATA = {
    "market": "MNIST, simulated owners",
    "fars": "FARS, 51 US states",
    "paper": "MNIST, the paper's game",
}
"""The presets, by the data that they bring."""

GROUPS: dict[str, dict[str, str]] = {
    "": {
        "population.owners": "Owners",
        "mechanism": "Mechanism",
        "market.budget": "Budget",
        "seed": "Seed",
    },
    "The market": {
        "market.target_accuracy": "Target accuracy",
        "market.floor": "Floor",
        "game.payment_max": "Highest payment",
        "game.quality_value": "Value of quality",
        "game.quality_weight": "Weight of quality",
        "learning.iterations": "Iterations of the game",
        "market.currency": "Currency",
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
        "privacy.epsilon_cap": "Privacy cap",
        "game.sigma_max": "Noise with no trade",
        "privacy.noise": "Source of the noise",
    },
}
"""The settings of the form and what they are called there; the first group is always shown. None of
them names a file."""

_SCHEMA = Scenario.model_json_schema()
_COST = "unit privacy cost that an owner may have, its secret"
_INSIDE = {
    f"population.privacy_cost.{end}": {"type": "number", "minimum": 0, "description": words}
    for end, words in (("low", f"lowest {_COST}"), ("high", f"highest {_COST}"))
}
"""Fields inside a distribution, which the scenario's schema does not describe."""

_SYMBOLS = {field: symbol for symbol, field in SYMBOLS.items()}
KEYS = tuple(key for group in GROUPS.values() for key in group)


def form(preset: str, data: Sequence[str] = ()) -> dict[str, Any]:
    """The form, filled in with the values of a preset; ``data`` are words that name other data."""
    scenario = load_scenario(preset=preset, settings=data)
    return {
        "named_owners": bool(named_records(scenario.training.data)),
        "groups": [
            {"title": title, "fields": [_field(key, name, scenario) for key, name in keys.items()]}
            for title, keys in GROUPS.items()
        ],
    }


class RefusedForm(NoisemarketError):
    """What is wrong with a form: for each field a sentence."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = dict(fields)
        super().__init__(" ".join(f"{field}: {words}" for field, words in fields.items()))


def said_of(problem: BadInput) -> str:
    """What is wrong with a value, in a sentence that stands under its field."""
    words = problem.remedy
    if str(problem).endswith(f": {words}"):
        return words[0].upper() + words[1:]
    return f"This {words}"


def words_of(own: Mapping[str, str], name: str) -> list[str]:
    """Words for ``--set`` that name one of the user's own folders of data; none for no name."""
    if name and name not in own:
        raise BadInput(
            "data", name, "is not among the folders that the dashboard was started with."
        )
    return [f"training.data={json.dumps(own[name])}"] if name else []


def all_wrong(preset: str, settings: Mapping[str, Any], data: Sequence[str] = ()) -> dict[str, str]:
    """All that is wrong with settings: a sentence for each."""
    left, wrong = dict(settings), dict[str, str]()
    while True:
        try:
            checked_settings(preset, left, data)
            return wrong
        except BadInput as problem:
            field = next((key for key in left if key.startswith(problem.field)), None)
            if field is None:
                raise
            wrong[field] = said_of(problem)
            del left[field]  # and on to what else is wrong


def refused(problem: BadInput) -> RefusedForm:
    """The same for what a command refused, in a sentence that begins with a setting."""
    field = next((key for key in KEYS if problem.remedy.startswith(f"{key} ")), None)
    if field is None:
        return RefusedForm({problem.field: said_of(problem)})
    words = problem.remedy.removeprefix(field).strip()
    return RefusedForm({field: f"This {words}"})


def checked_settings(
    preset: str, settings: Mapping[str, Any], data: Sequence[str] = ()
) -> list[str]:
    """Settings as words for ``--set``, refused as the command line refuses them."""
    words = [*data]
    for key, value in settings.items():
        if key not in KEYS:
            raise BadInput(key, value, f"is not on this form: {', '.join(KEYS)}.")
        if isinstance(value, str) and (len(value) > 100 or not value.isprintable()):
            raise BadInput(key, value, "give a short text.")
        words.append(f"{key}={json.dumps(value)}")
    scenario = load_scenario(preset=preset, settings=words)
    find_mechanism(scenario.mechanism)
    for name, drawn in scenario.population.distributions().items():
        for _, remedy in bad_values(name, drawn.quantile(np.array([0.001, 0.999]))):
            raise BadInput(f"population.{name}", getattr(scenario.population, name), f"{remedy}.")
    return words


def _field(key: str, name: str, scenario: Scenario) -> dict[str, Any]:
    value: Any = scenario
    about: Any = _SCHEMA
    for step in key.split("."):
        value = value[step] if isinstance(value, Mapping) else getattr(value, step)
        about = about.get("properties", {}).get(step, {})
        if "$ref" in about:
            about = _SCHEMA["$defs"][about["$ref"].rpartition("/")[2]]
    about = _INSIDE.get(key, about)
    symbol = _SYMBOLS.get(key.rpartition(".")[2])
    kinds = about.get("anyOf", [about])
    number = next((one for one in kinds if one.get("type") in ("integer", "number")), None)
    choices = _choices(key, about)
    return {
        "key": key,
        "name": name,
        "symbol": symbol,
        "value": value,
        "help": about["description"].removeprefix(f"{symbol}: ").removeprefix("I: "),
        "choices": choices,
        "kind": "choice" if choices else "number" if number else "text",
        "min": _limit(number, "minimum", "exclusiveMinimum"),
        "max": _limit(number, "maximum", "exclusiveMaximum"),
    }


def _limit(number: Mapping[str, float] | None, *names: str) -> float | None:
    return next((number[name] for name in names if name in number), None) if number else None


def _choices(key: str, about: Mapping[str, Any]) -> list[dict[str, str]]:
    if key == "mechanism":
        return [
            {"value": name, "name": name_of(name), "help": f"knows {find_mechanism(name).knows}"}
            for name in MECHANISMS
        ]
    names = ("auto", *PROTECTIONS) if key == "privacy.protection" else about.get("enum", ())
    return [{"value": name, "name": name, "help": ""} for name in names]
