"""A whole comparison: decide, train what is not trained yet, and put both together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.market.alternatives import epsilons
from noisemarket.market.worker_processes import in_processes
from noisemarket.scenario import Scenario
from noisemarket.study.calibration.measure import data_of
from noisemarket.study.comparison.decisions import NO_TRADE, Decision, decisions
from noisemarket.study.comparison.results import Row, row_of
from noisemarket.study.comparison.trainings import Key, NoiseOfAll, Orders, Trained, TrainingWork


@dataclass(frozen=True)
class Plan:
    """What to compare: mechanisms, budgets (None: no limit) and seeds."""

    mechanisms: tuple[str, ...]
    budgets: tuple[float | None, ...]
    seeds: tuple[int, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """From its fields as JSON has them."""
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

    def decide(self, threads: int | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Have every mechanism decide in every case; no trade, by which all are measured, first."""
        plan = self.plan
        names = [NO_TRADE, *(name for name in plan.mechanisms if name != NO_TRADE)]
        made = decisions(self.scenario, names, plan.budgets, plan.seeds, threads=threads, stop=stop)
        self._decisions = [*made]

    def wanted(self) -> list[NoiseOfAll]:
        """What is to be trained in all: equal noise of one seed once."""
        noises = (NoiseOfAll(one.seed, one.sigma) for one in self._decisions)
        found = {one.key: one for one in noises}
        return sorted(found.values(), key=lambda one: one.seed)

    def train(
        self,
        *,
        workers: int | None = None,
        stop: Callable[[], bool] | None = None,
        told: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        """Train what is missing, as many at once as there are processes."""
        wanted = self.wanted()
        left = [one for one in wanted if one.key not in self._trained]
        told(len(wanted) - len(left), len(wanted))
        if not left:
            return
        work = TrainingWork(self.scenario, data_of(self.scenario))
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
        orders = Orders(self.scenario, data_of(self.scenario))
        ends = [
            (
                self._trained[NoiseOfAll(one.seed, one.sigma).key].accuracies,
                epsilons(orders.under(one.seed, one.sigma)),
            )
            for one in self._decisions
        ]
        each = [*zip(self._decisions, ends, strict=True)]
        nothing = {one.seed: end for one, end in each if one.mechanism == NO_TRADE}
        return [row_of(one, *end, *nothing[one.seed]) for one, end in each]
