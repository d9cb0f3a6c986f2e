"""How a job's updates are weighed and used, by public figures alone."""

from __future__ import annotations

import math

from noisemarket.federated.engine import Job
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.rounds import TrainingPlan
from noisemarket.federated.server_rule import linear_steps, network_steps
from noisemarket.federated.weighting import (
    WEIGHTINGS,
    PublicFigures,
    Weighting,
    capped,
    effective_noise,
    owner_weights,
)
from noisemarket.scenario.auto import AUTO, ModelKind, tuned
from noisemarket.scenario.training_section import TrainingSection


def kind_of(maker: ModelMaker) -> ModelKind:
    """Whose settings suit a model: any other than a linear one is taken for a network."""
    return "features" if isinstance(maker, LinearMaker) else "cnn"


def averaging_of(training: TrainingSection) -> float:
    """The averaging of a scenario's own model."""
    return float(tuned("averaging", training.averaging, training.model))


def plan_of(
    training: TrainingSection, job: Job, beta: float, weighting: Weighting | None = None
) -> TrainingPlan:
    """How a job's updates are weighed and used, by its contracts and sizes.

    What ``training`` says takes the place of the rule, ``weighting`` that of the scenario's own.
    ``beta`` is the mean non-IID degree of the owners' data, as the market states it.
    """
    figures = PublicFigures(job.sigma, job.partition.sizes, training.rounds, beta)
    given = owner_weights(weighting or WEIGHTINGS.find(training.weighting)(), figures)
    shares = capped(given, training.weight_cap)
    if kind_of(job.model) == "features":
        longest = max(job.protection.reach(int(size)) for size in job.partition.sizes)
        noise = effective_noise(job.sigma, shares) / math.sqrt(len(job))
        steps = linear_steps(noise, longest, training.rounds)
    else:
        steps = network_steps(job.sigma, shares)
    rate, momentum, averaging = (
        own if said == AUTO else float(said)
        for said, own in (
            (training.server_rate, steps.rate),
            (training.momentum, steps.momentum),
            (training.averaging, steps.averaging),
        )
    )
    return TrainingPlan(
        training.rounds, shares, averaging, training.decay, rate, momentum, training.weight_cap
    )
