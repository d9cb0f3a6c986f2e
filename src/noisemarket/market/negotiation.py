"""The negotiation: contracts by a scenario's mechanism, readable, with the exact answers beside."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.formats import csv_text
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.value import Worth, worth
from noisemarket.machine import available_cores
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.convergence import Recovery, converged_at, recoveries
from noisemarket.pricing.mechanism import (
    MOST_POINTS,
    TRACE_EVERY,
    Agreement,
    Demand,
    Mechanism,
    PlayConfig,
    RunOptions,
    Stop,
    Trace,
    Watch,
)
from noisemarket.pricing.no_trade import why_nothing
from noisemarket.pricing.rule import Rule
from noisemarket.scenario import Scenario


@dataclass(frozen=True)
class AgreedContract:
    """What is agreed with one owner, and the preferences in force at the end.

    Attributes:
        owner: the owner's name.
        privacy_cost: what a unit of noise is worth to the owner, its secret.
        beta: non-IID degree of the owner's data.
        saving: noise that the owner leaves out.
        sigma: noise that the owner still adds.
        payment: what the curator pays.
        signed: whether the owner agreed to a trade (``no_dp`` imposes a saving without it).

    Example:
        >>> import noisemarket as nm
        >>> small = nm.Scenario.from_preset("market", owners=2)
        >>> [one.sigma for one in nm.negotiate(small, mechanism="uniform").contracts]
        [0.6, 0.6]
    """

    owner: str
    privacy_cost: float
    beta: float
    saving: float
    sigma: float
    payment: float
    signed: bool


CONTRACT_COLUMNS = tuple(field.name for field in fields(AgreedContract))


OWNERS_COLUMNS = ("owner_reward",)
"""What of a trace only the owners know."""


def trace_csv(trace: Trace, without: Collection[str] = ()) -> str:
    """A trace as CSV, one row per block of iterations, without some of its columns."""
    names = [name for name in Trace.__dataclass_fields__ if name not in without]
    columns = [getattr(trace, name).tolist() for name in names]
    return csv_text(names, zip(*columns, strict=True))


@dataclass(frozen=True)
class Negotiation:
    """What was agreed, and how far it is from the exact equilibrium and the first best.

    Attributes:
        scenario: the scenario, with the name of the mechanism that ran.
        environment: the game of the scenario, with its population.
        agreement: all contracts as level numbers; of a mechanism that learns, also its trace.

    Example:
        >>> import noisemarket as nm
        >>> small = nm.Scenario.from_preset("market", owners=3, model="cnn")
        >>> result = nm.negotiate(small, mechanism="dypp")
        >>> [contract.payment for contract in result.contracts if contract.signed]
        [12.0]
        >>> round(result.learned.curator_gain, 2), round(result.equilibrium.curator_gain, 2)
        (0.26, 0.41)
    """

    scenario: Scenario
    environment: Environment
    agreement: Agreement
    _exact: dict[tuple[str, int], Worth] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def contracts(self) -> tuple[AgreedContract, ...]:
        """The contracts of all owners that were finished, in the order of the population."""
        return tuple(itertools.starmap(AgreedContract, self._rows()))

    def contracts_csv(self) -> str:
        """The contracts as CSV, one row per owner, with a header."""
        signs = ("false", "true")
        rows = ((*agreed, signs[signed]) for *agreed, signed in self._rows())
        return csv_text(CONTRACT_COLUMNS, rows)

    def _rows(self) -> Iterator[tuple[str, float, float, float, float, float, bool]]:
        """The values of ``AgreedContract``, owner by owner."""
        levels, now = self.environment.levels, self.environment.phases[-1]
        contracts, owners = self.agreement.contracts, np.flatnonzero(self.agreement.done)
        saving, names = contracts.saving[owners], self.environment.population.names
        return zip(
            (str(names[index]) for index in owners.tolist()),
            now.privacy_cost[owners].tolist(),
            now.beta[owners].tolist(),
            np.round(levels.savings, 12)[saving].tolist(),
            np.round(levels.sigma_max - levels.savings, 12)[saving].tolist(),
            np.round(levels.payments, 12)[contracts.payment[owners]].tolist(),
            contracts.signed[owners].tolist(),
            strict=True,
        )

    @cached_property
    def learned(self) -> Worth:
        """What the contracts are worth."""
        return worth(self.environment, self.agreement.contracts, self.agreement.done)

    @property
    def equilibrium(self) -> Worth:
        """The same for the exact equilibrium of the game."""
        return self.exactly("equilibrium")

    @property
    def first_best(self) -> Worth:
        """The same for the contracts of a curator with full knowledge."""
        return self.exactly("first_best")

    def exactly(self, name: str, phase: int = -1) -> Worth:
        """What a mechanism that does not play would reach under the preferences of a phase."""
        key = (name, phase % len(self.environment.phases))
        if key not in self._exact:
            environment = self.environment.only(phase)
            exact = find_mechanism(name).run(environment, run_options(self.scenario))
            self._exact[key] = worth(environment, exact.contracts, self.agreement.done)
        return self._exact[key]

    @cached_property
    def converged_at(self) -> int | None:
        """Iteration from which savings and payments stay where they end up, None if never."""
        trace = self.agreement.trace
        return None if trace is None else converged_at(trace, self.environment.levels)

    @cached_property
    def recoveries(self) -> list[Recovery]:
        """How play recovered from each change of preferences."""
        trace, phases = self.agreement.trace, self.environment.phases
        if trace is None or len(phases) == 1:
            return []
        exact, starts = self.equilibria, [phase.start for phase in phases]
        return recoveries(trace, self.environment.levels, starts, exact, self._no_trade())

    @cached_property
    def equilibria(self) -> list[Worth]:
        """What the exact equilibrium is worth in each phase of the preferences."""
        return [self.exactly("equilibrium", at) for at in range(len(self.environment.phases))]

    @cached_property
    def curator_gains(self) -> FloatArray | None:
        """The curator's mean gain over no trade at each point of the trace."""
        trace = self.agreement.trace
        if trace is None:
            return None
        return np.asarray(trace.curator_reward - self._no_trade()[self.phases_of(trace.iteration)])

    def phases_of(self, iteration: IntArray) -> IntArray:
        """The phase of the preferences at each of these points of a trace."""
        starts = [phase.start for phase in self.environment.phases]
        return np.searchsorted(starts, iteration, side="left") - 1

    def _no_trade(self) -> FloatArray:
        """The curator's mean reward in each phase if nothing is traded."""
        payoffs = [one.mean_curator_payoff - one.curator_gain for one in self.equilibria]
        signed = self.environment.protocol == "signed"  # rewards are counted over no trade
        return np.zeros(len(payoffs)) if signed else np.array(payoffs)

    def why_nothing(self) -> str:
        """A sentence on why nothing was bought, for one party that knows all secrets."""
        joint = find_mechanism(self.scenario.mechanism).joint
        demand, currency = run_options(self.scenario).demand, self.scenario.market.currency
        return why_nothing(self.environment, demand, joint=joint, currency=currency)

    def outcome(self) -> dict[str, object]:
        """What was reached, without the exact answers to compare it with."""
        owner = _mean(self.agreement.owner_exploitability)
        curator = _mean(self.agreement.curator_exploitability)
        return {
            "preset": self.scenario.preset,
            "mechanism": self.scenario.mechanism,
            "owners": len(self.environment),
            "iterations": self.scenario.learning.iterations,
            "seed": self.scenario.seed,
            "complete": self.agreement.complete,
            "owners_done": int(self.agreement.done.sum()),
            **self.learned.as_dict(),
            "converged_at": self.converged_at,
            "exploitability": None if owner is None or curator is None else owner + curator,
            "owner_exploitability": owner,
            "curator_exploitability": curator,
        }

    def summary(self) -> dict[str, object]:
        """Everything that ``negotiate --json`` prints."""
        return self.outcome() | {
            "currency": self.scenario.market.currency,
            "equilibrium": self.equilibrium.as_dict(),
            "first_best": self.first_best.as_dict(),
            "recoveries": [vars(recovery) for recovery in self.recoveries],
        }


def _mean(values: FloatArray | None) -> float | None:
    """The mean over the owners that were finished; None where it is not known."""
    if values is None or np.isnan(values).all():
        return None
    return float(np.nanmean(values))


def negotiate(
    scenario: Scenario | None = None,
    *,
    mechanism: str | Mechanism | type[Rule] | None = None,
    threads: int | None = None,
    watch: Watch = lambda progress: None,
    stop: Stop = lambda: False,
) -> Negotiation:
    """Agree contracts between all owners of a scenario and the curator.

    Args:
        scenario: the market; by default the preset ``market``.
        mechanism: how contracts are agreed, instead of the scenario's: a name in ``MECHANISMS``, or
            one's own, as an instance of ``Mechanism`` or as a subclass of ``Rule``.
        threads: threads to use; by default all cores. Results do not depend on it.
        watch: called with every batch of owners that is finished.
        stop: asked now and then; once it returns True, the run ends and keeps finished owners.

    Returns:
        The contracts, with the exact equilibrium and the first best to compare them with.

    Raises:
        BadInput: a value of the scenario or an argument cannot be used.

    Example:
        >>> import noisemarket as nm
        >>> small = nm.Scenario.from_preset("market", owners=3, model="cnn")
        >>> result = nm.negotiate(small, mechanism="pain_fl")
        >>> [(one.owner, one.saving, one.payment, one.signed) for one in result.contracts]
        [('0', 0.0, 0.0, False), ('1', 0.0, 0.0, False), ('2', 0.35, 16.0, True)]
    """
    scenario = scenario or Scenario.from_preset("market")
    given = mechanism or scenario.mechanism
    chosen = find_mechanism(given)
    name = given if isinstance(given, str) else chosen.name
    scenario = scenario.model_copy(update={"mechanism": name})
    from noisemarket.market.orders import with_caps  # which needs run_options

    environment = with_caps(scenario)
    agreement = chosen.run(environment, run_options(scenario, threads, watch, stop))
    return Negotiation(scenario, environment, agreement)


def run_options(
    scenario: Scenario,
    threads: int | None = None,
    watch: Watch = lambda progress: None,
    stop: Stop = lambda: False,
) -> RunOptions:
    """How to run the mechanism of a scenario."""
    if threads is not None and threads < 1:
        raise BadInput("threads", threads, "give at least 1.")
    learning = scenario.learning
    play = PlayConfig(
        settings=learning.settings(),
        iterations=learning.iterations,
        seed=scenario.play_seed(),
        optimism=learning.optimism,
        trace_every=TRACE_EVERY * -(-learning.iterations // (TRACE_EVERY * MOST_POINTS)),
        window=learning.window,
        interactions_per_message=learning.interactions_per_message,
    )
    market = scenario.market
    demand = Demand(
        floor=market.floor,
        budget=None if market.budget == "none" else float(market.budget),
        target=None if market.target_accuracy == "none" else float(market.target_accuracy),
        scored=True,
    )
    threads = threads or available_cores()
    return RunOptions(play, threads, demand, watch, stop)
