"""What follows from a scenario: the values of auto, its protection, what each saving sells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Protection
from noisemarket.federated.protections.protection import privacy_sold
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.population import Population

if TYPE_CHECKING:
    from noisemarket.scenario.schema import Scenario

AUTO = "auto"

ModelKind = Literal["features", "cnn"]


@dataclass(frozen=True)
class Tuning:
    """Settings that suit a model. Features take one long step, which the clip cuts."""

    protection: str
    records_per_shard: int
    local_rate: float
    shard_steps: int
    shard_rate: float


TUNINGS: dict[ModelKind, Tuning] = {
    "features": Tuning("per_record", 1, 0.5, 1, 8.0),
    "cnn": Tuning("sharded", 10, 0.05, 2, 0.4),
}


def protection_of(scenario: Scenario, model: ModelKind | None = None) -> Protection:
    """The protection of a scenario, for its own model or another one."""
    sections = {"training": scenario.training, "privacy": scenario.privacy}
    tuning = TUNINGS[model or scenario.training.model]
    values: dict[str, Any] = {"local_rate": tuning.local_rate, "shard_steps": tuning.shard_steps}
    for name, part in sections.items():
        for key, value in part:
            values[f"{name}.{key}"] = getattr(tuning, key, value) if value == AUTO else value
    kind = PROTECTIONS.find(values["privacy.protection"], load=True)
    return kind.from_scenario(values, scenario.privacy.settings)


def sold_in(scenario: Scenario, levels: Levels, population: Population) -> FloatArray:
    """The privacy that each saving sells in a scenario's job, for the median owner."""
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
