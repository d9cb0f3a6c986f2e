"""What ``auto`` stands for in a scenario: settings that suit its model, by public figures alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from noisemarket.federated.engine import Job
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.rounds import TrainingPlan
from noisemarket.federated.server_rule import (
    LINEAR_AVERAGING,
    NETWORK_AVERAGING,
    ServerSteps,
    linear_steps,
    network_steps,
)
from noisemarket.federated.weighting import (
    WEIGHTINGS,
    PublicFigures,
    Weighting,
    effective_noise,
    owner_weights,
)
from noisemarket.federated.weighting.weight_cap import capped
from noisemarket.scenario.training_section import TrainingSection

AUTO = "auto"

ModelKind = Literal["features", "cnn"]


@dataclass(frozen=True)
class Tuning:
    """Settings that suit a model.

    Args:
        local_rate: step size of an owner's SGD.
        shard_steps: steps of a shard.
        shard_rate: their size. Features take one long step, which the clip then cuts to length.
        averaging: weight of the past in an average of the global models.
    """

    local_rate: float
    shard_steps: int
    shard_rate: float
    averaging: float


TUNINGS: dict[ModelKind, Tuning] = {
    "features": Tuning(0.5, 1, 60.0, LINEAR_AVERAGING),
    "cnn": Tuning(0.05, 2, 0.4, NETWORK_AVERAGING),
}


def kind_of(maker: ModelMaker) -> ModelKind:
    """Whose settings suit a model: any other than a linear one is taken for a network."""
    return "features" if isinstance(maker, LinearMaker) else "cnn"


def tuned(name: str, value: Any, kind: ModelKind) -> Any:
    """A setting's value, or what ``auto`` stands for."""
    return getattr(TUNINGS[kind], name, value) if value == AUTO else value


def averaging_of(training: TrainingSection) -> float:
    """The averaging of a scenario's own model."""
    return float(tuned("averaging", training.averaging, training.model))


def plan_of(
    training: TrainingSection, job: Job, weighting: Weighting | None = None
) -> TrainingPlan:
    """How a job's updates are weighed and used, by its contracts and sizes.

    Args:
        training: the scenario's table; what it says takes the place of the rule.
        job: the job, with its contracts.
        weighting: instead of the scenario's own.
    """
    figures = PublicFigures(job.sigma, job.partition.sizes, training.rounds)
    given = owner_weights(weighting or WEIGHTINGS.find(training.weighting)(), figures)
    shares = capped(given, training.weight_cap)
    if kind_of(job.model) == "features":
        longest = max(job.protection.reach(int(size)) for size in job.partition.sizes)
        noise = effective_noise(job.sigma, shares) / math.sqrt(len(job))
        steps = linear_steps(noise, longest, training.rounds)
    else:
        steps = network_steps(job.sigma, shares)
    chosen = ServerSteps(
        *(
            own if said == AUTO else float(said)
            for said, own in (
                (training.server_rate, steps.rate),
                (training.momentum, steps.momentum),
                (training.averaging, steps.averaging),
            )
        )
    )
    return TrainingPlan(training.rounds, shares, chosen.averaging, training.decay, chosen.rate,
                        chosen.momentum, training.weight_cap)  # fmt: skip
