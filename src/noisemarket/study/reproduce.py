"""The trials behind the reproduction: every learner, both presets, many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from noisemarket.errors import NoisemarketError
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.market.negotiation import Negotiation, negotiate
from noisemarket.pricing.convergence import TAIL, settled_at
from noisemarket.scenario import Scenario

LEARNERS = ("dypp", "q_learning", "greedy")
PRESETS = ("paper", "market")
CHANGES = {"halve": 0.5, "double": 2.0}
"""What happens to all privacy costs half-way through the trials of adaptation, on ``market``."""

ADAPTING = ("dypp", "q_learning")

Value = TypeVar("Value")


@dataclass(frozen=True)
class Trials:
    """One learner on one preset over all seeds; every array has a row or an entry per seed.

    ``saving`` and ``payment`` are as played, block by block; quality, payment and gain of the
    contracts are as signed in the end.
    """

    preset: str
    learner: str
    owners: int
    iteration: IntArray
    ranges: dict[str, float]
    saving: FloatArray
    payment: FloatArray
    quality: FloatArray
    contract_payment: FloatArray
    contract_gain: FloatArray
    exploitability: FloatArray
    equilibrium_gain: FloatArray

    def at_start(self, series: str) -> FloatArray:
        """A series' first block, per seed."""
        return np.asarray(getattr(self, series)[:, 0])

    def at_end(self, series: str) -> FloatArray:
        """A series' mean over its last tenth, per seed."""
        values = getattr(self, series)
        return np.asarray(values[:, -max(1, round(TAIL * values.shape[1])) :].mean(axis=1))

    def settled(self, horizon: int, *names: str) -> FloatArray:
        """Iterations after which all these series stay where they are at the horizon, per seed.

        A longer run extends a shorter one, so the first ``horizon`` iterations are what a run of
        that length would have been. Infinite where a series has not settled.
        """
        blocks = int(np.searchsorted(self.iteration, horizon, side="right"))
        out = np.zeros(len(self.saving))
        for name in names:
            for seed, series in enumerate(getattr(self, name)[:, :blocks]):
                at = settled_at(series, self.iteration[:blocks], self.ranges[name])
                out[seed] = max(out[seed], np.inf if at is None else at)
        return out


@dataclass(frozen=True)
class Adaptation:
    """One learner through one change of all privacy costs, an entry per seed.

    ``before`` and ``after`` are the curator's gain as a share of the exact equilibrium's, late
    before the change and late after it; ``iterations`` to recover are NaN where it did not.
    """

    change: str
    learner: str
    before: FloatArray
    after: FloatArray
    iterations: FloatArray


@dataclass(frozen=True)
class Study:
    """How large the trials are, who hears of each run, and who may stop them."""

    seeds: int
    owners: int
    iterations: int
    threads: int | None
    advance: Callable[[str, str], None]
    stop: Callable[[], bool]

    def trials(self) -> Iterator[Trials]:
        """All trials; ends early, between learners, when ``stop`` says so."""
        for preset in PRESETS:
            for learner in LEARNERS:
                results = self._run(preset, learner, preset, iterations=self.iterations)
                if results is None:
                    return
                yield _collect(preset, learner, results)

    def adaptations(self) -> Iterator[Adaptation]:
        """The trials of adaptation; ends early, between learners, when ``stop`` says so."""
        for change, factor in CHANGES.items():
            for learner in ADAPTING:
                changes = [{"at": self.iterations, "scale": {"privacy_cost": factor}}]
                results = self._run(
                    "market", learner, f"costs {change}",
                    iterations=2 * self.iterations, changes=changes,
                )  # fmt: skip
                if results is None:
                    return
                recoveries = [one for result in results for one in result.recoveries]
                yield Adaptation(
                    change=change,
                    learner=learner,
                    before=np.array([one.efficiency_before for one in recoveries], dtype=float),
                    after=np.array([one.efficiency_after for one in recoveries], dtype=float),
                    iterations=np.array([one.iterations for one in recoveries], dtype=float),
                )

    def _run(
        self, preset: str, learner: str, title: str, **settings: object
    ) -> list[Negotiation] | None:
        """One negotiation per seed, or None if it was stopped."""
        results = []
        for seed in range(1, self.seeds + 1):
            if self.stop():
                return None
            scenario = Scenario.from_preset(
                preset, surface="printed", seed=seed, owners=self.owners, **settings
            )
            results.append(negotiate(scenario, mechanism=learner, threads=self.threads))
            self.advance(title, learner)
        return results


def _collect(preset: str, learner: str, results: list[Negotiation]) -> Trials:
    traces = [_learned(result.agreement.trace) for result in results]

    def series(name: str) -> FloatArray:
        return np.array([getattr(trace, name) for trace in traces])

    def figure(name: str) -> FloatArray:
        return np.array([getattr(result.learned, name) for result in results])

    levels = results[0].environment.levels
    return Trials(
        preset=preset,
        learner=learner,
        owners=len(results[0].environment),
        iteration=traces[0].iteration,
        ranges={"saving": levels.sigma_max, "payment": levels.payment_max},
        saving=series("saving"),
        payment=series("payment"),
        quality=figure("mean_quality"),
        contract_payment=figure("mean_payment"),
        contract_gain=figure("curator_gain"),
        exploitability=np.array([_exploitability(result) for result in results]),
        equilibrium_gain=np.array([result.equilibrium.curator_gain for result in results]),
    )


def _exploitability(result: Negotiation) -> float:
    sides = result.agreement.owner_exploitability, result.agreement.curator_exploitability
    return float(sum(_learned(side).mean() for side in sides))


def _learned(value: Value | None) -> Value:
    if value is None:
        raise NoisemarketError("a trial has no trace or no exploitability: nothing was learned.")
    return value
