"""Measuring a point: a federated training run under uniform or mixed contracts.

It is an experiment by one party that holds all the data. Noise comes from the seed, so that a point
can be measured again bit by bit; nobody's privacy is protected by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.aggregation import VERSION as RULE_VERSION
from noisemarket.federated.aggregation import effective_noise, effective_share
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.rounds import Checkpoint, RoundResult, State, train
from noisemarket.files import remove_unfinished
from noisemarket.formats import finite
from noisemarket.market.local_engine import LocalEngine
from noisemarket.market.orders import Order, given_sigma, order
from noisemarket.privacy.accountant import Accountant
from noisemarket.scenario import Scenario
from noisemarket.scenario.population_file import read_population
from noisemarket.study.calibration.grid import Setting
from noisemarket.study.calibration.points import Point


def simulated(scenario: Scenario) -> Scenario:
    """The scenario with noise from its seed, and without caps: every round is to be measured."""
    free = {"noise": "simulated", "rho_cap": 0.0, "epsilon_cap": 0.0}
    privacy = scenario.privacy.model_copy(update=free)
    return scenario.model_copy(update={"privacy": privacy})


def data_of(scenario: Scenario) -> Dataset:
    """The images that a scenario trains with."""
    data = load_data(scenario.training.data or None)
    return data.with_features() if scenario.training.model == "features" else data


def fingerprint(scenario: Scenario, data: str) -> str:
    """Of all that a measured point depends on besides its setting; ``data`` is the images' SHA-256.

    The same wherever images and owners' files lie.
    """
    people = scenario.population.model_dump(mode="json")
    file = scenario.population.file
    sizes = read_population(file).data_size.tolist() if file else people["data_size"]
    document = {
        "training": scenario.training.model_dump(mode="json", exclude={"data"}),
        "privacy": simulated(scenario).privacy.model_dump(mode="json"),
        "owners": people["owners"],
        "sigma_max": scenario.game.sigma_max,
        "data_size": sizes,
        "data": data,
        "rule": RULE_VERSION,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def point_order(scenario: Scenario, setting: Setting) -> Order:
    """The training job that measures a point."""
    scenario = simulated(scenario).model_copy(update={"seed": setting.seed})
    environment = scenario.environment()
    owners = len(environment)
    sigma = given_sigma(setting.sigma, environment)
    if setting.sellers < 1.0:
        order_of_sale = np.random.default_rng((setting.seed, 11)).permutation(owners)
        others = order_of_sale[some_of(setting.sellers, owners) :]
        sigma[others] = environment.levels.sigma_max
    population = replace(environment.population, beta=np.full(owners, setting.beta))
    return order(scenario, replace(environment, population=population), sigma)


def some_of(share: float, owners: int) -> int:
    """How many owners a share of them is: at least one, and not all."""
    sellers = round(share * owners)
    if not 0 < sellers < owners:
        remedy = f"is {sellers} of {owners} owners: give a share that leaves sellers and others."
        raise BadInput("mixed", share, remedy)
    return sellers


def measure(
    scenario: Scenario,
    setting: Setting,
    folder: Path,
    workers: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[RoundResult], None] = lambda _: None,
) -> Point | None:
    """Measure a point, or go on with one whose training was cut off; None if asked to stop.

    The state after each round is kept in ``folder`` until ``forget`` removes it.
    """
    training = point_order(scenario, setting)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(_file(folder, setting), training.fingerprint)
    try:
        state = training.resumed(checkpoint)
    except BadInput as problem:
        remedy = problem.remedy.rstrip(".") + ": remove it to measure this point anew."
        raise BadInput("checkpoint", str(checkpoint.path), remedy) from None
    accountant = Accountant(training.budgets)
    for done in state.results:
        for owner in done.charged:
            accountant.charge(owner, done.number)
    with LocalEngine(training.job, workers, stop) as engine, suppress(Interrupted):
        for result in train(engine, training.job, accountant, training.plan, state, checkpoint):
            watch(result)
            if stop():
                break
    if state.rounds_done < training.plan.rounds:
        return None
    return _point(setting, state, training)


def forget(folder: Path, setting: Setting) -> None:
    """Remove what was kept of a point's training, once the point itself is safe."""
    path = _file(folder, setting)
    path.unlink(missing_ok=True)
    if folder.is_dir():
        remove_unfinished(path)
        if not any(folder.iterdir()):
            folder.rmdir()


def _file(folder: Path, setting: Setting) -> Path:
    return folder / f"{setting.name}.npz"


def _point(setting: Setting, state: State, training: Order) -> Point:
    last, weights = state.results[-1], training.plan.shares
    deployed = last.averaged or last.score
    return Point(
        sigma=setting.sigma,
        beta=setting.beta,
        seed=setting.seed,
        accuracy=deployed.accuracy,
        loss=finite(deployed.loss),
        last_accuracy=last.score.accuracy,
        last_loss=finite(last.score.loss),
        rounds=last.number,
        refused=sum(len(result.refused) for result in state.results),
        seconds=sum(result.seconds for result in state.results),
        accuracy_per_round=tuple((one.averaged or one.score).accuracy for one in state.results),
        sellers=setting.sellers,
        noise=effective_noise(training.job.sigma, weights),
        share=effective_share(weights),
    )
