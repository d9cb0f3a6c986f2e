"""Compare mechanisms on the same owners, data and seeds: decide, train, and put both together.

Every mechanism decides in every case (mechanism, budget, seed). Cases that leave the owners of a
seed with the same noise share one training, and trainings of an earlier run are not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, Interrupted
from noisemarket.formats import finite
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.game.value import JointValue
from noisemarket.ledger.money import to_micro
from noisemarket.market.baselines import epsilons
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import within_budget
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import Agreement, Mechanism
from noisemarket.pricing.oracles import NoDP, UniformDP
from noisemarket.scenario import Scenario
from noisemarket.scenario.surface_file import find_surface
from noisemarket.study.lying import mean_and_most, most_gained_by_lying
from noisemarket.study.results import NO_TRADE, QUANTILES, Row
from noisemarket.study.trainings import Orders, TrainingFile, TrainingTask, data_of


@dataclass(frozen=True)
class Plan:
    """What to compare: mechanisms, budgets (None: no limit) and seeds."""

    mechanisms: tuple[str, ...]
    budgets: tuple[float | None, ...]
    seeds: tuple[int, ...]


@contextmanager
def or_left_out(name: str) -> Iterator[None]:
    """Add to the remedy of a refused mechanism that it can be left out."""
    try:
        yield
    except BadInput as bad:
        remedy = f"{bad.remedy[:-1]}, or leave {name} out of the comparison."
        raise BadInput(bad.field, bad.value, remedy) from None


# Decisions


@dataclass(frozen=True, eq=False)
class Decision:
    """A mechanism's decision in one case; arrays have a value for each owner.

    ``gains`` are over no trade, ``costs`` the unit privacy costs. ``welfare_prices`` is what a
    point of quality and a unit of money are worth to the curator, and a unit of money to an owner.
    ``lying`` is the most that any owner could gain by lying, for the first seed; None where it is
    not known, or where a budget could cut deals that a mechanism made without knowing it.
    """

    mechanism: str
    budget: float | None
    seed: int
    sigma: FloatArray
    gains: FloatArray
    costs: FloatArray
    paid: float
    sellers: int
    welfare_prices: tuple[float, float, float]
    seconds: float
    messages: float | None
    lying: float | None


def decisions(
    scenario: Scenario,
    plan: Plan,
    own: Mapping[str, Scenario] | None = None,
    *,
    threads: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Decision]:
    """Every mechanism on the same owners, which are drawn once for each seed.

    A mechanism that buys owner by owner knows no budget. It is run once for all budgets, and of its
    deals those with most gain per money are struck, as ``run`` does. ``own`` has scenarios of
    single mechanisms, for settings of learning, menu, floor and surface.
    """
    scenarios = {name: (own or {}).get(name, scenario) for name in plan.mechanisms}
    for name, one in scenarios.items():
        _compile(name, one)
    for seed in plan.seeds:
        drawn = scenario.model_copy(update={"seed": seed}).environment()
        for name, one in scenarios.items():
            seeded = one.model_copy(update={"seed": seed})
            environment = replace(drawn, surface=find_surface(seeded.surface_name()))
            first = seed == plan.seeds[0]
            yield from _decisions(name, seeded, environment, plan.budgets, threads, stop, first)


def _compile(name: str, scenario: Scenario) -> None:
    """Let it decide for two owners first, so that no seed's seconds include compilation."""
    if scenario.population.file:
        return
    two = scenario.population.model_copy(update={"owners": 2})
    small = scenario.model_copy(update={"population": two, "changes": ()})
    with suppress(BadInput):  # raised again for the real owners
        find_mechanism(name).run(small.environment(), run_options(small))


def _decisions(
    name: str,
    scenario: Scenario,
    environment: Environment,
    budgets: Sequence[float | None],
    threads: int | None,
    stop: Callable[[], bool],
    lies: bool,
) -> Iterator[Decision]:
    mechanism, levels = find_mechanism(name), environment.levels
    costs = np.asarray(environment.phases[-1].privacy_cost, dtype=float)
    left = np.array([levels.sigma_left(level) for level in range(levels.saving_levels + 1)])
    side, joint = environment.owner_side(), JointValue.of(environment)
    made: Agreement | None = None
    seconds, lying = 0.0, None
    for budget in budgets:
        if made is None or mechanism.joint:
            paid = "none" if budget is None else budget
            market = scenario.market.model_copy(update={"budget": paid})
            priced = scenario.model_copy(update={"market": market})
            options = run_options(priced, threads, stop=stop)
            start = time.process_time()
            with or_left_out(name):
                made = mechanism.run(environment, options)
            seconds = time.process_time() - start
            if lies and made.complete:
                gained = most_gained_by_lying(environment, mechanism, options, made)
                lying = mean_and_most(gained)[1]
        if not made.complete:
            raise Interrupted("stopped; finished trainings are saved.")
        micro = None if budget is None else to_micro(budget, "budget")
        struck = within_budget(environment, made.contracts, micro)
        yield Decision(
            mechanism=name,
            budget=budget,
            seed=scenario.seed,
            sigma=left[struck.saving],
            gains=side.payoffs_of(struck.saving, struck.payment) - side.base(),
            costs=costs,
            paid=float(levels.payments[struck.payment].sum()),
            sellers=int((struck.saving > 0).sum()),
            welfare_prices=(joint.quality_price, joint.money_price, environment.payment_value),
            seconds=seconds,
            messages=made.messages,
            lying=lying if _lying_is_known(mechanism, environment, budget) else None,
        )


def _lying_is_known(mechanism: Mechanism, environment: Environment, budget: float | None) -> bool:
    """Whether a budget leaves the gain by lying as the mechanism states it.

    Of deals made owner by owner a budget strikes those with most gain per money. A lie may then
    move an owner before others, or over the budget, which the mechanism does not know.
    """
    most = len(environment) * float(environment.levels.payments[-1])
    unasked = isinstance(mechanism, UniformDP | NoDP)
    return budget is None or mechanism.joint or unasked or budget >= most


# Through to the trained model


class Comparison:
    """A scenario's mechanisms through to the trained model; ``own`` is as in ``decisions``."""

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        file: TrainingFile,
        own: Mapping[str, Scenario] | None = None,
    ) -> None:
        self.scenario, self.plan, self.file, self._own = scenario, plan, file, own
        self._decisions: list[Decision] = []

    def decide(self, threads: int | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Have every mechanism decide in every case; no trade, the baseline of all, first."""
        others = (name for name in self.plan.mechanisms if name != NO_TRADE)
        plan = replace(self.plan, mechanisms=(NO_TRADE, *others))
        self._decisions = [*decisions(self.scenario, plan, self._own, threads=threads, stop=stop)]

    def tasks(self) -> list[TrainingTask]:
        """All trainings that the rows rest on: equal noise of one seed once."""
        found = {(task := TrainingTask(one.seed, one.sigma)).key: task for one in self._decisions}
        return sorted(found.values(), key=lambda task: task.seed)

    def train(self, **options: Any) -> None:
        """Train the missing tasks (options: see ``TrainingFile.train``)."""
        self.file.train(self.scenario, self.tasks(), **options)

    @property
    def training_cpu_seconds(self) -> float:
        """Processor seconds of all trainings that it rests on, of earlier runs too."""
        return sum(self.file.results[task.key].cpu_seconds for task in self.tasks())

    def rows(self) -> list[Row]:
        """A row for every case."""
        orders, results = Orders(self.scenario, data_of(self.scenario)), self.file.results
        ends = []
        for one in self._decisions:
            task = TrainingTask(one.seed, one.sigma)
            ends.append((results[task.key].accuracies, epsilons(orders.under(task))))
        each = [*zip(self._decisions, ends, strict=True)]
        no_trade = {one.seed: end for one, end in each if one.mechanism == NO_TRADE}
        return [_row(one, *end, *no_trade[one.seed]) for one, end in each]


def _row(
    decision: Decision,
    accuracies: Sequence[float],
    epsilon: FloatArray,
    no_trade: Sequence[float],
    epsilon_before: FloatArray,
) -> Row:
    """A decision with the accuracies after each round and each owner's epsilon, under it and
    without trade."""
    quality_price, money_price, owners_price = decision.welfare_prices
    paid, surplus = decision.paid, float(decision.gains.sum())
    value = quality_price * (accuracies[-1] - no_trade[-1]) - money_price * paid
    welfare = (
        value / money_price + surplus / owners_price if money_price * owners_price > 0 else None
    )
    bounded = bool(np.isfinite(epsilon_before).all())
    sold = epsilon - epsilon_before if bounded else np.full(len(epsilon), np.inf)
    groups = np.array_split(np.argsort(decision.costs, kind="stable"), QUANTILES)
    return Row(
        mechanism=decision.mechanism,
        budget=decision.budget,
        seed=decision.seed,
        paid=paid,
        accuracy=accuracies[-1],
        curator_value=value,
        owners_surplus=surplus,
        social_welfare=welfare,
        worse_off=int((decision.gains < -1e-9).sum()),
        sellers=decision.sellers,
        epsilon_sold=finite(float(sold.sum())),
        lying_gain=decision.lying,
        messages=decision.messages,
        seconds=decision.seconds,
        accuracy_per_round=list(accuracies),
        epsilon_by_cost=[_mean_of(sold, some) for some in groups],
        surplus_by_cost=[_mean_of(decision.gains, some) for some in groups],
    )


def _mean_of(values: FloatArray, some: np.ndarray) -> float | None:
    return finite(float(values[some].mean())) if len(some) else None
