"""What each mechanism buys from the same owners, for each budget and seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from noisemarket.comparison.own_settings import as_compared
from noisemarket.errors import BadInput, Interrupted
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.ledger.money import to_micro
from noisemarket.market.deals import within_budget
from noisemarket.mechanisms import find_mechanism
from noisemarket.mechanisms.lying import mean_and_most, most_gained_by_lying
from noisemarket.mechanisms.mechanism import Agreement, Contracts, Mechanism
from noisemarket.mechanisms.tally import Tally, tally
from noisemarket.mechanisms.unasked import Unasked
from noisemarket.negotiation import run_options
from noisemarket.scenario import Scenario
from noisemarket.scenario.surface_file import find_surface

NO_TRADE = "uniform"
"""The mechanism that all are compared with: nobody sells."""


@dataclass(frozen=True)
class Case:
    """One thing to be decided: by which mechanism, for how much at most, among whom."""

    mechanism: str
    budget: float | None
    seed: int


@dataclass(frozen=True, eq=False)
class Decision:
    """What a mechanism decided in a case.

    Args:
        case: what was to be decided.
        sigma: the noise that each owner keeps.
        gains: what each owner gains over no trade, by its own payoff.
        costs: each owner's unit privacy cost.
        worth: the contracts' worth by the loss surface.
        sellers: how many owners give up noise.
        welfare_prices: what a point of quality and a unit of money are worth to the curator, and
            what a unit of money is worth to an owner.
        seconds: of processors that the mechanism took.
        messages: questions that an owner answered on average; None where nobody asks.
        lying: the most that any owner could gain by lying; None where it is not known, or where a
            budget could cut deals that a mechanism made without knowing it. It is computed for the
            first seed alone.
    """

    case: Case
    sigma: FloatArray
    gains: FloatArray
    costs: FloatArray
    worth: Tally
    sellers: int
    welfare_prices: tuple[float, float, float]
    seconds: float = 0.0
    messages: float | None = None
    lying: float | None = None


def decisions(
    scenario: Scenario,
    mechanisms: Sequence[str],
    budgets: Sequence[float | None],
    seeds: Sequence[int],
    *,
    threads: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Decision]:
    """Every mechanism on the same owners: drawn once for each seed; each by its own settings.

    A mechanism that buys owner by owner knows no budget. It is run once for all budgets, and of its
    deals those with most gain per money are struck, as ``run`` does.

    Raises:
        BadInput: a mechanism cannot serve the scenario.
        Interrupted: ``stop`` returned True.
    """
    own = {name: as_compared(scenario, name) for name in mechanisms}
    for name in mechanisms:
        _warm(name, own[name])
    for seed in seeds:
        drawn = scenario.model_copy(update={"seed": seed}).environment()
        for name in mechanisms:
            seeded = own[name].model_copy(update={"seed": seed})
            environment = replace(drawn, surface=find_surface(seeded.surface_name()))
            first = seed == seeds[0]
            yield from _decided(name, seeded, environment, budgets, threads, stop, first)


def _warm(name: str, scenario: Scenario) -> None:
    """Let it decide for two owners first, so that no seed's seconds hold those of compiling."""
    if scenario.population.file:
        return
    two = scenario.population.model_copy(update={"owners": 2})
    small = scenario.model_copy(update={"population": two, "changes": ()})
    with suppress(BadInput):  # said of the owners that count
        find_mechanism(name).run(small.environment(), run_options(small))


def _decided(
    name: str,
    scenario: Scenario,
    environment: Environment,
    budgets: Sequence[float | None],
    threads: int | None,
    stop: Callable[[], bool],
    lies: bool,
) -> Iterator[Decision]:
    mechanism = find_mechanism(name)
    made: Agreement | None = None
    seconds, lying = 0.0, None
    for budget in budgets:
        if made is None or mechanism.joint:
            paid = "none" if budget is None else budget
            market = scenario.market.model_copy(update={"budget": paid})
            options = run_options(
                scenario.model_copy(update={"market": market}), threads, stop=stop
            )  # fmt: skip
            start = time.process_time()
            try:
                made = mechanism.run(environment, options)
            except BadInput as bad:
                remedy = f"{bad.remedy[:-1]}, or leave {name} out of --mechanisms."
                raise BadInput(bad.field, bad.value, remedy) from None
            seconds = time.process_time() - start
            if lies and made.complete:
                gained = most_gained_by_lying(environment, mechanism, options, made)
                lying = mean_and_most(gained)[1]
        if not made.complete:
            raise Interrupted("stopped; what was finished is kept.")
        micro = None if budget is None else to_micro(budget, "--budgets")
        kept = within_budget(environment, made.contracts, micro)
        valued = _valued(Case(name, budget, scenario.seed), environment, kept)
        told = lying if _sure_of_lies(mechanism, environment, budget) else None
        yield replace(valued, seconds=seconds, messages=made.messages, lying=told)


def _sure_of_lies(mechanism: Mechanism, environment: Environment, budget: float | None) -> bool:
    """Whether a budget leaves what lying brings as the mechanism says it is.

    Of deals made owner by owner a budget strikes those with most gain per money. A lie may then
    move an owner before others, or over the budget, which the mechanism does not know.
    """
    most = len(environment) * float(environment.levels.payments[-1])
    return budget is None or mechanism.joint or isinstance(mechanism, Unasked) or budget >= most


def _valued(case: Case, environment: Environment, contracts: Contracts) -> Decision:
    levels, now = environment.levels, environment.phases[-1]
    left = np.array([levels.sigma_left(level) for level in range(levels.saving_levels + 1)])
    return Decision(
        case=case,
        sigma=left[contracts.saving],
        gains=_gains(environment, contracts),
        costs=np.asarray(now.privacy_cost, dtype=float),
        worth=tally(environment, contracts),
        sellers=int((contracts.saving > 0).sum()),
        welfare_prices=(
            len(environment) * now.quality_weight * now.quality_value,
            (1.0 - now.quality_weight) * now.payment_cost,
            environment.payment_value,
        ),
    )


def _gains(environment: Environment, contracts: Contracts) -> FloatArray:
    """What each owner's contract is worth to it, over no trade."""
    out = np.zeros(len(contracts))
    for some in environment.slices():
        row = np.arange(some.stop - some.start)
        payoffs = environment.owner_side(-1, some).payoffs()
        out[some] = payoffs[row, contracts.saving[some], contracts.payment[some]] - payoffs[:, 0, 0]
    return out
