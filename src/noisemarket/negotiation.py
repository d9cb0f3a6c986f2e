"""The negotiation: a scenario's game played by its mechanism, with the exact answers beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from noisemarket.cores import available_cores
from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.learning.batch import PlayConfig
from noisemarket.mechanisms import find_mechanism
from noisemarket.mechanisms.convergence import Recovery, converged_at, recoveries
from noisemarket.mechanisms.mechanism import Agreement, Progress, RunOptions
from noisemarket.mechanisms.tally import Tally, tally
from noisemarket.scenario import Scenario


@dataclass(frozen=True)
class Negotiation:
    """What was agreed, and how far it is from the exact equilibrium and the first best."""

    scenario: Scenario
    environment: Environment
    agreement: Agreement
    _exact: dict[tuple[str, int], Tally] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def learned(self) -> Tally:
        """What the contracts are worth."""
        return tally(self.environment, self.agreement.contracts, self.agreement.done)

    @property
    def equilibrium(self) -> Tally:
        """The same for the exact equilibrium of the game."""
        return self.exactly("equilibrium")

    @property
    def first_best(self) -> Tally:
        """The same for what a curator who knew everything would sign."""
        return self.exactly("first_best")

    def exactly(self, name: str, phase: int = -1) -> Tally:
        """What a mechanism that needs no play would reach under the preferences of a phase."""
        key = (name, phase % len(self.environment.phases))
        if key not in self._exact:
            environment = self.environment.only(phase)
            exact = find_mechanism(name).run(environment, run_options(self.scenario))
            self._exact[key] = tally(environment, exact.contracts, self.agreement.done)
        return self._exact[key]

    @cached_property
    def converged_at(self) -> int | None:
        """Iteration from which savings and payments stay where they end up, None if never."""
        trace = self.agreement.trace
        return None if trace is None else converged_at(trace, self.environment.levels)

    @cached_property
    def recoveries(self) -> list[Recovery]:
        """How play took each change of preferences."""
        trace, phases = self.agreement.trace, self.environment.phases
        if trace is None or len(phases) == 1:
            return []
        exact = [self.exactly("equilibrium", phase) for phase in range(len(phases))]
        counted_over_no_trade = self.environment.protocol == "signed"
        no_trade = np.array(
            [
                0.0 if counted_over_no_trade else one.mean_curator_payoff - one.curator_gain
                for one in exact
            ]
        )
        starts = [phase.start for phase in phases]
        return recoveries(trace, self.environment.levels, starts, exact, no_trade)

    def outcome(self) -> dict[str, object]:
        """What was reached, without the exact answers to hold it against."""
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
            "equilibrium": self.equilibrium.as_dict(),
            "first_best": self.first_best.as_dict(),
            "recoveries": [vars(recovery) for recovery in self.recoveries],
        }


def negotiate(
    scenario: Scenario | None = None,
    *,
    mechanism: str | None = None,
    learner: str | None = None,
    threads: int | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Negotiation:
    """Play a scenario's game: ``negotiate(Scenario.from_preset("market")).summary()``.

    ``mechanism`` (earlier: ``learner``) overrides the scenario's. ``watch`` hears of every batch
    of owners that is done; when ``stop`` returns True the run ends early and keeps finished owners.
    """
    scenario = scenario or Scenario.from_preset("market")
    if mechanism is not None and learner is not None:
        raise BadInput("learner", learner, "is the earlier name of mechanism: give only one.")
    name = mechanism or learner or scenario.mechanism
    scenario = scenario.model_copy(update={"mechanism": name})
    chosen = find_mechanism(name)
    environment = scenario.environment()
    agreement = chosen.run(environment, run_options(scenario, threads, watch, stop))
    return Negotiation(scenario, environment, agreement)


def run_options(
    scenario: Scenario,
    threads: int | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> RunOptions:
    """How a scenario wants its mechanism run."""
    if threads is not None and threads < 1:
        raise BadInput("threads", threads, "give at least 1.")
    learning = scenario.learning
    play = PlayConfig(
        settings=learning.settings(),
        iterations=learning.iterations,
        seed=scenario.play_seed(),
        owner_optimism=learning.owner_optimism,
        curator_optimism=learning.curator_optimism,
        trace_every=learning.trace_every,
        window=learning.window,
        interactions_per_message=learning.interactions_per_message,
    )
    return RunOptions(
        play, scenario.menu.types, threads or available_cores(), watch=watch, stop=stop
    )


def _mean(values: np.ndarray | None) -> float | None:
    return None if values is None or np.isnan(values).all() else float(np.nanmean(values))
