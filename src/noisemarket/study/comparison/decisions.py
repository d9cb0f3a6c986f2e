"""What each mechanism buys from the same owners, for each budget and seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from noisemarket.errors import BadInput, Interrupted
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.ledger.money import to_micro
from noisemarket.market.deals import within_budget
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.lying import mean_and_most, most_gained_by_lying
from noisemarket.pricing.mechanism import Agreement, Contracts, Mechanism
from noisemarket.pricing.tally import Tally, tally
from noisemarket.pricing.unasked import Unasked
from noisemarket.scenario import Scenario
from noisemarket.scenario.load import build
from noisemarket.scenario.surface_file import find_surface

NO_TRADE = "uniform"
"""The mechanism that all are compared with: nobody sells."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What a mechanism decided.

    Args:
        mechanism: who decided.
        budget: for how much at most; None for no limit.
        seed: of the owners and of all else that is drawn.
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

    mechanism: str
    budget: float | None
    seed: int
    sigma: FloatArray
    gains: FloatArray
    costs: FloatArray
    worth: Tally
    sellers: int
    welfare_prices: tuple[float, float, float]
    seconds: float
    messages: float | None
    lying: float | None


def as_compared(scenario: Scenario, mechanism: str) -> Scenario:
    """The scenario with the settings that it has for this mechanism alone.

    Owners, data, training and what privacy costs stay the same for all: only ``learning``,
    ``menu``, ``game.surface`` (by which the mechanism values noise) and ``market.floor`` may
    differ.

    Raises:
        BadInput: a setting is unknown, or would make it another comparison.

    Example:
        >>> own = [{"mechanism": "dypp", "settings": {"learning_rate": 0.8}}]
        >>> scenario = Scenario.from_preset("market", compared=own)
        >>> [as_compared(scenario, name).learning.learning_rate for name in ("dypp", "phc")]
        [0.8, 0.1]
    """
    for section in scenario.compared:
        if section.mechanism == mechanism:
            document = scenario.model_dump(mode="json")
            for key, value in section.settings.items():
                made = build(scenario.preset, document, {key: value})
                if _rest(made) != _rest(scenario):
                    remedy = "only learning, menu, surface and floor may be a mechanism's own."
                    raise BadInput(f"compared.settings.{key}", value, remedy)
            scenario = build(scenario.preset, document, section.settings)
    return scenario


def _rest(scenario: Scenario) -> dict[str, object]:
    """All that must be the same for every mechanism."""
    rest = scenario.model_dump()
    del rest["learning"], rest["menu"], rest["game"]["surface"], rest["market"]["floor"]
    return rest


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
    mechanism, now, levels = find_mechanism(name), environment.phases[-1], environment.levels
    left = np.array([levels.sigma_left(level) for level in range(levels.saving_levels + 1)])
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
        yield Decision(
            mechanism=name,
            budget=budget,
            seed=scenario.seed,
            sigma=left[kept.saving],
            gains=_gains(environment, kept),
            costs=np.asarray(now.privacy_cost, dtype=float),
            worth=tally(environment, kept),
            sellers=int((kept.saving > 0).sum()),
            welfare_prices=(
                len(environment) * now.quality_weight * now.quality_value,
                (1.0 - now.quality_weight) * now.payment_cost,
                environment.payment_value,
            ),
            seconds=seconds,
            messages=made.messages,
            lying=lying if _sure_of_lies(mechanism, environment, budget) else None,
        )


def _sure_of_lies(mechanism: Mechanism, environment: Environment, budget: float | None) -> bool:
    """Whether a budget leaves what lying brings as the mechanism says it is.

    Of deals made owner by owner a budget strikes those with most gain per money. A lie may then
    move an owner before others, or over the budget, which the mechanism does not know.
    """
    most = len(environment) * float(environment.levels.payments[-1])
    return budget is None or mechanism.joint or isinstance(mechanism, Unasked) or budget >= most


def _gains(environment: Environment, contracts: Contracts) -> FloatArray:
    """What each owner's contract is worth to it, over no trade."""
    out = np.zeros(len(contracts))
    for some in environment.slices():
        row = np.arange(some.stop - some.start)
        payoffs = environment.owner_side(-1, some).payoffs()
        out[some] = payoffs[row, contracts.saving[some], contracts.payment[some]] - payoffs[:, 0, 0]
    return out
