"""Calibration: measure accuracy over noise and non-IID data by training, point by point.

A point is one training under uniform or mixed contracts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.market.orders import given_sigma
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of
from noisemarket.scenario.surface_file import fingerprint
from noisemarket.study.trainings import Key, TrainingResult, TrainingTask, TrainingWork, data_of

SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
BETAS = (0.1, 1.0, 10.0)
MIXED = (
    (0.01, 0.05), (0.02, 0.1), (0.05, 0.05), (0.05, 0.2), (0.1, 0.1), (0.2, 0.05), (0.2, 0.2),
    (0.5, 0.1), (0.5, 0.3),
)  # fmt: skip
"""Mixed contracts: the share of the owners that sells, and the noise that each of them keeps."""
MOST_BETA = 1e6
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Setting:
    """One point to be measured: owners add noise ``sigma``, to data of degree ``beta``.

    All of them do, or a share of them, ``sellers``; the others then add sigma_max.
    """

    sigma: float
    beta: float
    seed: int
    sellers: float = 1.0


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
        """Every point, in the order of measuring: the whole plane with the first seed, then with
        the next; in a plane beta by beta, mixed contracts last."""
        for repeat in range(self.seeds):
            for beta in self.betas:
                for sigma in self.sigmas:
                    yield Setting(sigma, beta, first_seed + repeat)
                for share, sigma in self.mixed:
                    yield Setting(sigma, beta, first_seed + repeat, share)


@dataclass(frozen=True)
class CalibrationPlan:
    """What a calibration measures, what its surface is called, and what all points must share.

    ``data`` is the SHA-256 of the images, ``fingerprint`` that of the settings and of ``data``.
    """

    name: str
    grid: Grid
    command: str
    data: str
    labels: int
    fingerprint: str


def usual_plan(scenario: Scenario, command: str) -> CalibrationPlan:
    """The default: where noise decides the weights, contracts of one market are mixed, too."""
    owners, data = scenario.population.owners, data_of(scenario)
    mixed = [one for one in MIXED if 0 < round(one[0] * owners) < owners]
    grid = Grid(mixed=tuple(mixed) if scenario.training.weighting == "noise" else ())
    name = f"{protection_of(scenario).name}-measured"
    alike = fingerprint(scenario, data.sha256)
    return CalibrationPlan(name, grid, command, data.sha256, data.classes, alike)


def try_out(scenario: Scenario, grid: Grid) -> None:
    """Find bad input before anything is written or measured."""
    sigma_max = scenario.game.sigma_max
    for _, sigma in grid.mixed:
        if sigma > sigma_max:
            raise BadInput("mixed", sigma, f"give a sigma from 0 to sigma_max = {sigma_max:g}.")
    first = next(iter(tasks_of(scenario, grid).values()))
    TrainingWork(scenario).order(first)


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


@dataclass(frozen=True, kw_only=True)
class Point(Setting):
    """A measured setting: ``accuracy`` of the deployed model, in per cent.

    Effective noise and share are those of ``TrainingResult``.
    """

    accuracy: float
    effective_noise: float
    effective_share: float
    seconds: float


def simulated(scenario: Scenario) -> Scenario:
    """The scenario with noise from its seed, and without caps: every round is to be measured."""
    free = {"noise": "simulated", "rho_cap": 0.0, "epsilon_cap": 0.0}
    privacy = scenario.privacy.model_copy(update=free)
    return scenario.model_copy(update={"privacy": privacy})


def tasks_of(scenario: Scenario, grid: Grid) -> dict[Setting, TrainingTask]:
    """The training that measures each point of a grid, in the order of measuring."""
    environment = scenario.environment()
    owners, out = len(environment), {}
    for setting in grid.settings(scenario.seed):
        sigma = given_sigma(setting.sigma, environment)
        if setting.sellers < 1.0:
            order_of_sale = np.random.default_rng((setting.seed, 11)).permutation(owners)
            others = order_of_sale[some_of(setting.sellers, owners) :]
            sigma[others] = environment.levels.sigma_max
        out[setting] = TrainingTask(setting.seed, sigma, setting.beta)
    return out


def some_of(share: float, owners: int) -> int:
    """How many owners a share of them is: at least one, and not all."""
    sellers = round(share * owners)
    if not 0 < sellers < owners:
        remedy = f"is {sellers} of {owners} owners: give a share that leaves sellers and others."
        raise BadInput("mixed", share, remedy)
    return sellers


def points_of(
    tasks: Mapping[Setting, TrainingTask], results: Mapping[Key, TrainingResult]
) -> list[Point]:
    """The points that have been measured."""
    return [
        Point(
            **vars(setting),
            accuracy=result.accuracies[-1],
            effective_noise=result.effective_noise,
            effective_share=result.effective_share,
            seconds=result.seconds,
        )
        for setting, task in tasks.items()
        if (result := results.get(task.key)) is not None
    ]
