"""Calibration: measure accuracy over noise and non-IID data by training, point by point.

A point is one training under uniform or mixed contracts. It is an experiment by one party that
holds all the data. Noise comes from the seed, so that a point can be measured again bit by bit;
nobody's privacy is protected by it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.aggregation import VERSION as RULE_VERSION
from noisemarket.federated.aggregation import effective_noise, effective_share
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.rounds import Checkpoint, RoundResult, train
from noisemarket.files import remove_unfinished
from noisemarket.formats import finite
from noisemarket.market.local_engine import LocalEngine
from noisemarket.market.orders import Order, given_sigma, order
from noisemarket.privacy.accountant import Accountant
from noisemarket.scenario import Scenario
from noisemarket.scenario.population_file import read_population
from noisemarket.study.results import ResultFile

SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
BETAS = (0.1, 1.0, 10.0)
MIXED = (
    (0.01, 0.05), (0.02, 0.1), (0.05, 0.05), (0.05, 0.2), (0.1, 0.1), (0.2, 0.05), (0.2, 0.2),
    (0.5, 0.1), (0.5, 0.3),
)  # fmt: skip
"""Mixed contracts: the share of the owners that sells, and the noise that each of them keeps."""
MOST_BETA = 1e6
MOST_SEEDS = 1000
POINTS = "points.jsonl"


@dataclass(frozen=True)
class Setting:
    """One point to be measured: owners add noise ``sigma``, to data of degree ``beta``.

    All of them do, or a share of them, ``sellers``; the others then add sigma_max.
    """

    sigma: float
    beta: float
    seed: int
    sellers: float = 1.0

    @property
    def name(self) -> str:
        """A name for files."""
        mixed = "" if self.sellers == 1.0 else f"-sellers-{self.sellers!r}"
        return f"sigma-{self.sigma!r}-beta-{self.beta!r}-seed-{self.seed}{mixed}"


@dataclass(frozen=True)
class Grid:
    """All pairs of ``sigmas`` and ``betas``, each measured with ``seeds`` seeds.

    So are all pairs of ``mixed`` contracts (share of sellers, their sigma) and ``betas``.
    """

    sigmas: tuple[float, ...] = SIGMAS
    betas: tuple[float, ...] = BETAS
    seeds: int = 1
    mixed: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        _check_numbers("sigmas", self.sigmas, lambda value: value >= 0, "numbers of at least 0")
        wanted = f"numbers above 0, up to {MOST_BETA:g}"
        _check_numbers("betas", self.betas, lambda value: 0 < value <= MOST_BETA, wanted)
        for share, sigma in self.mixed:
            _check_numbers("mixed", (share,), lambda value: 0 < value < 1, "shares between 0 and 1")
            _check_numbers("mixed", (sigma,), lambda value: value >= 0, "sigmas of at least 0")
        if len(set(self.mixed)) < len(self.mixed):
            raise BadInput("mixed", str(self.mixed), "give each once.")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise BadInput("seeds", self.seeds, f"give a number from 1 to {MOST_SEEDS}.")

    def __len__(self) -> int:
        return (len(self.sigmas) + len(self.mixed)) * len(self.betas) * self.seeds

    def settings(self, first_seed: int) -> Iterator[Setting]:
        """Every point, in the order of measuring.

        The whole plane with the first seed, then with the next. In a plane the beta closest to 1
        comes first, and then always the one farthest from all before; so do the sigmas, from the
        smallest; mixed contracts follow.
        """
        betas = spread([math.log(beta) for beta in self.betas], 0.0)
        sigmas = spread(self.sigmas, 0.0)
        for repeat in range(self.seeds):
            for j in betas:
                for i in sigmas:
                    yield Setting(self.sigmas[i], self.betas[j], first_seed + repeat)
                for share, sigma in self.mixed:
                    yield Setting(sigma, self.betas[j], first_seed + repeat, share)


def spread(values: Sequence[float], near: float) -> list[int]:
    """Indices of the values: first the closest to ``near``, then each farthest from the rest."""
    left = list(range(len(values)))
    order = [min(left, key=lambda i: (abs(values[i] - near), i))]
    left.remove(order[0])
    while left:
        apart = {i: min(abs(values[i] - values[j]) for j in order) for i in left}
        order.append(max(left, key=lambda i: (apart[i], -i)))
        left.remove(order[-1])
    return order


def _check_numbers(
    field: str, values: tuple[float, ...], fits: Callable[[float], bool], wanted: str
) -> None:
    if not values:
        raise BadInput(field, "", f"give {wanted}.")
    for value in values:
        if not (math.isfinite(value) and fits(value)):
            raise BadInput(field, value, f"give {wanted}.")
    if len(set(values)) < len(values):
        raise BadInput(field, ",".join(f"{value:g}" for value in values), "give each once.")


@dataclass(frozen=True)
class Point:
    """The result of one training. ``loss`` is None where it was not finite.

    ``accuracy`` (per cent) and ``loss`` are those of the model that a curator would deploy: the
    average of the global models where one is kept, else the last; ``last_accuracy`` and
    ``last_loss`` are those of the last. ``noise`` and ``share`` are the effective ones, by
    contracts and weights.
    """

    sigma: float
    beta: float
    seed: int
    accuracy: float
    loss: float | None
    last_accuracy: float
    last_loss: float | None
    rounds: int
    refused: int
    seconds: float
    accuracy_per_round: tuple[float, ...] = ()
    sellers: float = 1.0
    noise: float | None = None
    share: float = 1.0

    @property
    def setting(self) -> Setting:
        """What was measured."""
        return Setting(self.sigma, self.beta, self.seed, self.sellers)

    @property
    def effective_noise(self) -> float:
        """The one noise of all owners that would leave their mean as noisy."""
        return self.sigma if self.noise is None else self.noise


class Points(ResultFile[Setting, Point]):
    """The points measured so far, by their setting, of one calibration.

    All of them were measured alike but for their setting, as the ``fingerprint`` in each line says.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        seen = set()

        def parse(values: dict[str, Any]) -> Point:
            seen.add(values.pop("fingerprint"))
            per_round = tuple(map(float, values.pop("accuracy_per_round")))
            return Point(**values, accuracy_per_round=per_round)

        remedy = "drop that line to measure its point again."
        super().__init__(path, "points", "another calibration", remedy, parse, lambda p: p.setting)
        self.fingerprint = fingerprint
        if seen - {fingerprint}:
            self.close()
            remedy = "holds a point of other settings or data: they cannot mix."
            raise BadInput("points", str(path), remedy)

    def add(self, one: Point, **more: object) -> None:
        """Save a point, with the fingerprint."""
        super().add(one, **more, fingerprint=self.fingerprint)


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
    """Digest of the job: all that accuracy depends on besides noise, beta and seed.

    ``data`` is the SHA-256 of the data; MNIST counts by its name. How privacy is counted does not
    matter, nor do paths.
    """
    people, file = scenario.population, scenario.population.file
    sizes = read_population(file, secrets=False).data_size.tolist() if file else people.data_size
    counted = {"delta", "neighbours", "rho_cap", "epsilon_cap", "noise"}
    document = {
        "training": scenario.training.model_dump(mode="json", exclude={"data"}),
        "privacy": scenario.privacy.model_dump(mode="json", exclude=counted),
        "owners": people.owners,
        "data_size": sizes,
        "sigma_max": scenario.game.sigma_max,
        "data": data if scenario.training.data else "mnist",
        "rule": RULE_VERSION,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def point_order(scenario: Scenario, setting: Setting, data: Dataset | None = None) -> Order:
    """The training job that measures a point, on the scenario's data or other."""
    scenario = simulated(scenario).model_copy(update={"seed": setting.seed})
    environment = scenario.environment()
    owners = len(environment)
    sigma = given_sigma(setting.sigma, environment)
    if setting.sellers < 1.0:
        order_of_sale = np.random.default_rng((setting.seed, 11)).permutation(owners)
        others = order_of_sale[some_of(setting.sellers, owners) :]
        sigma[others] = environment.levels.sigma_max
    population = replace(environment.population, beta=np.full(owners, setting.beta))
    return order(scenario, replace(environment, population=population), sigma, data=data)


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
    """Measure a point, or resume its training; None if ``stop`` returned True.

    A checkpoint after each round stays in ``folder`` until ``forget`` removes it.
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
    return point_of(setting, state.results, training)


def forget(folder: Path, setting: Setting) -> None:
    """Remove a point's checkpoint, once the point itself is saved."""
    path = _file(folder, setting)
    path.unlink(missing_ok=True)
    if folder.is_dir():
        remove_unfinished(path)
        if not any(folder.iterdir()):
            folder.rmdir()


def _file(folder: Path, setting: Setting) -> Path:
    return folder / f"{setting.name}.npz"


def point_of(setting: Setting, results: Sequence[RoundResult], training: Order) -> Point:
    """The point that a training measured."""
    last, weights = results[-1], training.plan.shares
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
        refused=sum(len(result.refused) for result in results),
        seconds=sum(result.seconds for result in results),
        accuracy_per_round=tuple((one.averaged or one.score).accuracy for one in results),
        sellers=setting.sellers,
        noise=effective_noise(training.job.sigma, weights),
        share=effective_share(weights),
    )
