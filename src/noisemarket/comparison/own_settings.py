"""Each mechanism at its best: the scenario as one mechanism of a comparison is given it."""

from __future__ import annotations

from noisemarket.errors import BadInput
from noisemarket.scenario import Scenario
from noisemarket.scenario.load import build

_OPEN = ("learning", "menu")
"""Tables of which a mechanism may have settings of its own."""


def as_compared(scenario: Scenario, mechanism: str) -> Scenario:
    """The scenario with the settings that it has for this mechanism alone.

    Owners, data, training and what privacy costs stay the same for all: only ``learning``,
    ``menu``, ``game.surface`` (by which the mechanism values noise) and ``market.floor`` may
    differ.

    Raises:
        BadInput: a setting is unknown, or would make it another comparison.

    Example:
        >>> own = [{"mechanism": "dypp", "settings": {"learning_rate": 0.8}}]
        >>> scenario = Scenario.from_preset("market", compared=own)
        >>> [as_compared(scenario, name).learning.learning_rate for name in ("dypp", "phc")]
        [0.8, 0.1]
    """
    for section in scenario.compared:
        if section.mechanism == mechanism:
            document = scenario.model_dump(mode="json")
            for key, value in section.settings.items():
                made = build(scenario.preset, document, {key: value})
                if _rest(made) != _rest(scenario):
                    remedy = "only learning, menu, surface and floor may be a mechanism's own."
                    raise BadInput(f"compared.settings.{key}", value, remedy)
            scenario = build(scenario.preset, document, section.settings)
    return scenario


def _rest(scenario: Scenario) -> dict[str, object]:
    """All that must be the same for every mechanism."""
    rest = scenario.model_dump()
    for table in _OPEN:
        del rest[table]
    del rest["game"]["surface"], rest["market"]["floor"]
    return rest
