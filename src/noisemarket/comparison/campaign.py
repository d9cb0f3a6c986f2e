"""A whole comparison: decide, train what is not trained yet, and put both together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisemarket.comparison.decisions import NO_TRADE, Decision, decisions
from noisemarket.comparison.results import Row, row_of, with_no_trade
from noisemarket.comparison.trainings import (
    Key,
    NoiseOfAll,
    Orders,
    Trained,
    TrainingWork,
    distinct,
    missing,
)
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.game.levels import FloatArray
from noisemarket.market.alternatives import epsilons
from noisemarket.scenario import Scenario
from noisemarket.training.worker_processes import in_processes


@dataclass(frozen=True)
class Plan:
    """What to compare: mechanisms, budgets (None: no limit) and seeds."""

    mechanisms: tuple[str, ...]
    budgets: tuple[float | None, ...]
    seeds: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: list(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """From what ``as_dict`` gave."""
        return cls(*(tuple(values[name]) for name in ("mechanisms", "budgets", "seeds")))


class Campaign:
    """A scenario's mechanisms compared through to the trained model.

    Args:
        scenario: the owners, the game, and how to train.
        plan: what to compare.
        known: trainings that need not be done again.
        keep: is given every training once it is done.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        known: Mapping[Key, Trained] | None = None,
        keep: Callable[[Trained], object] = lambda trained: None,
    ) -> None:
        self.scenario, self.plan = scenario, plan
        self._trained, self._keep = dict(known or {}), keep
        self._decisions: list[Decision] = []

    def decide(
        self, threads: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> list[Decision]:
        """Have every mechanism decide in every case; no trade is always among them."""
        plan = self.plan
        self._decisions = list(
            decisions(
                self.scenario,
                with_no_trade(plan.mechanisms),
                plan.budgets,
                plan.seeds,
                threads=threads,
                stop=stop,
            )
        )
        return self._decisions

    def wanted(self) -> list[NoiseOfAll]:
        """What is to be trained in all: equal noise of one seed once."""
        return distinct(NoiseOfAll(one.case.seed, one.sigma) for one in self._decisions)

    def train(
        self,
        *,
        workers: int | None = None,
        stop: Callable[[], bool] | None = None,
        told: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        """Train what is missing, as many at once as there are processes."""
        wanted = self.wanted()
        left = missing(wanted, self._trained)
        told(len(wanted) - len(left), len(wanted))
        if not left:
            return
        work = TrainingWork(self.scenario, self._data())
        for _, trained in in_processes(work, left, workers=workers, stop=stop):
            self._trained[trained.key] = trained
            self._keep(trained)
            told(sum(one.key in self._trained for one in wanted), len(wanted))

    @property
    def training_cpu_seconds(self) -> float:
        """Processor seconds of all trainings that it rests on, in this run and in earlier ones."""
        return sum(self._trained[one.key].cpu_seconds for one in self.wanted())

    def rows(self) -> list[Row]:
        """A row for every case."""
        orders = Orders(self.scenario, self._data())
        before: dict[int, tuple[Sequence[float], FloatArray]] = {}
        for one in self._decisions:
            if one.case.mechanism == NO_TRADE:
                seed = one.case.seed
                before[seed] = self._accuracies(one), epsilons(orders.under(seed, one.sigma))
        return [
            row_of(
                one,
                self._accuracies(one),
                before[one.case.seed][0],
                epsilons(orders.under(one.case.seed, one.sigma)),
                before[one.case.seed][1],
            )
            for one in self._decisions
        ]

    def _accuracies(self, one: Decision) -> list[float]:
        return self._trained[NoiseOfAll(one.case.seed, np.asarray(one.sigma)).key].accuracies

    def _data(self) -> Dataset:
        data = load_data(self.scenario.training.data or None)
        return data.with_features() if self.scenario.training.model == "features" else data
