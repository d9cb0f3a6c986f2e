"""The account of a scenario's job: its protection, and the privacy that each saving sells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Protection
from noisemarket.federated.protections.protection import privacy_sold
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.population import Population
from noisemarket.scenario.auto import ModelKind, tuned

if TYPE_CHECKING:
    from noisemarket.scenario.schema import Scenario


def protection_of(scenario: Scenario, model: ModelKind | None = None) -> Protection:
    """The protection that a scenario asks for; ``model`` is what it is for, if not its own."""
    sections = {"training": scenario.training, "privacy": scenario.privacy}
    values = {
        f"{name}.{key}": tuned(key, value, model or scenario.training.model)
        for name, part in sections.items()
        for key, value in part
    }
    kind = PROTECTIONS.find(scenario.privacy.protection, load=True)
    return kind.from_scenario(values, scenario.privacy.settings)


def sold_in(scenario: Scenario, levels: Levels, population: Population) -> FloatArray:
    """The privacy that each saving sells in a scenario's job (``privacy_sold``).

    Where a protection's account depends on the number of records, it is that of the median owner.

    Raises:
        BadInput: nothing bounds what a round costs, or every outcome binds.
    """
    if scenario.game.protocol == "simultaneous":
        remedy = "with payoff epsilon_loss give signed: all outcomes would bind, infinite ones too."
        raise BadInput("game.protocol", scenario.game.protocol, remedy)
    privacy = scenario.privacy
    return privacy_sold(
        protection_of(scenario),
        levels.sigmas.tolist(),
        rounds=scenario.training.rounds,
        records=int(np.median(population.data_size)),
        neighbours=privacy.neighbours,
        delta=privacy.delta,
    )
