"""From a scenario and its contracts to a trained model and a privacy statement per owner."""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.data import load_mnist
from noisemarket.federated.engine import Job
from noisemarket.federated.model import CNN
from noisemarket.federated.partition import dirichlet_partition
from noisemarket.federated.protections import DPSGD, Paper, Protection, Sharded
from noisemarket.federated.training import Plan
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.privacy.statement import PrivacyBudget
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.scenario import Scenario, dump_scenario


@dataclass(frozen=True)
class Order:
    """A scenario made ready to train: the job, the plan, and each owner's budget."""

    job: Job
    plan: Plan
    budgets: tuple[PrivacyBudget, ...]
    fingerprint: str


def order(scenario: Scenario, environment: Environment, sigma: FloatArray) -> Order:
    """Load the data, deal it to the owners, and set up everything that training needs."""
    training, privacy = scenario.training, scenario.privacy
    owners = len(environment)
    data = load_mnist(training.data or None)
    if data.image_shape != data.image_shape[:1] * 2:
        raise BadInput("data", str(data.image_shape), "the CNN takes square images of one channel.")
    population = environment.population
    seed = np.random.SeedSequence(scenario.seed, spawn_key=(7,))
    partition = dirichlet_partition(
        data.train_labels,
        owners,
        population.beta,
        np.random.default_rng(seed),
        data_size=population.data_size,
    )
    model = partial(CNN, training.channels, training.hidden, data.classes, data.image_shape[0])
    protection = protection_of(scenario)
    job = Job(data, partition, model, protection, sigma, scenario.seed, privacy.noise)
    dimension = sum(p.numel() for p in model().parameters())
    neighbours = Neighbours.named(privacy.neighbours)
    budgets = []
    for owner in range(owners):
        reach = protection.sensitivity(dimension, int(partition.sizes[owner]), neighbours)
        budgets.append(
            PrivacyBudget(
                owner=owner,
                protection=protection.name,
                sigma=float(sigma[owner]),
                sensitivity=reach,
                neighbours=neighbours,
                whole_owner=protection.whole_owner,
                delta=privacy.delta,
                rho_cap=math.inf,
                simulated=privacy.noise == "simulated",
            )
        )
    shares = partition.sizes.astype(float) if training.weighting == "data_size" else np.ones(owners)
    plan = Plan(training.rounds, shares, training.averaging)
    return Order(job, plan, tuple(budgets), fingerprint(scenario, environment, sigma))


def fingerprint(scenario: Scenario, environment: Environment, sigma: FloatArray) -> str:
    """What tells this job from any other: its settings, its owners and their contracts.

    Owners count by what they are, not by the file they were read from: a run folder holds a copy.
    """
    population = environment.population
    settings = scenario.population.model_copy(update={"file": ""})
    digest = hashlib.sha256(
        dump_scenario(scenario.model_copy(update={"population": settings})).encode()
    )
    digest.update("\n".join(map(str, population.names)).encode())
    for values in (population.beta, population.data_size, sigma):
        digest.update(np.ascontiguousarray(values, dtype=float).tobytes())
    return digest.hexdigest()


def protection_of(scenario: Scenario) -> Protection:
    """The protection that a scenario asks for."""
    training, privacy = scenario.training, scenario.privacy
    if privacy.protection == "paper":
        return Paper(training.batch, training.local_rate, training.local_epochs)
    if privacy.protection == "dp_sgd":
        return DPSGD(training.batch, training.local_rate, privacy.clip)
    return Sharded(privacy.shards, privacy.clip, privacy.shard_steps, privacy.shard_rate)


def one_sigma(value: float, owners: int, sigma_max: float) -> FloatArray:
    """The same noise for all owners."""
    return _checked(np.full(owners, float(value)), ["all owners"] * owners, sigma_max)


def read_contracts(file: str, environment: Environment) -> FloatArray:
    """Each owner's noise out of a contracts file: columns owner and sigma, any others ignored."""
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, ValueError, csv.Error) as problem:
        reason = getattr(problem, "strerror", None) or "not a CSV file"
        raise BadInput("--contracts", file, f"cannot be read ({reason}).") from None
    if not rows or not {"owner", "sigma"} <= set(rows[0]):
        raise BadInput("--contracts", file, "give a CSV with columns owner and sigma.")
    names = [str(name) for name in environment.population.names]
    place = {name: i for i, name in enumerate(names)}
    sigma = np.full(len(names), np.nan)
    for row in rows:
        owner = row["owner"]
        if owner not in place:
            raise BadInput("--contracts", owner, "is no owner of this scenario: drop its row.")
        if not np.isnan(sigma[place[owner]]):
            raise BadInput("--contracts", owner, "has two rows: keep one.")
        try:
            sigma[place[owner]] = float(row["sigma"])
        except (TypeError, ValueError):
            raise BadInput(f"sigma of owner {owner}", row["sigma"], "give a number.") from None
    without = np.flatnonzero(np.isnan(sigma))
    if len(without):
        raise BadInput("--contracts", file, f"has no usable sigma for owner {names[without[0]]}.")
    return _checked(sigma, names, environment.levels.sigma_max)


def _checked(sigma: FloatArray, names: list[str], sigma_max: float) -> FloatArray:
    bad = ~((sigma >= 0) & (sigma <= sigma_max * (1 + 1e-9)))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        remedy = f"give a number from 0 to sigma_max = {sigma_max:g}."
        raise BadInput(f"sigma of {names[first]}", float(sigma[first]), remedy)
    return sigma
