"""Contracts by learning: both sides play the game until they have settled on a deal.

DyPP is this with WoLF-PHC; two-layer Q-learning and greedy are the paper's benchmarks. No learner
sees more than its own rewards and the moves of the other side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.exploitability import exploitability
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.outcomes import IntArray, Outcomes
from noisemarket.learning.batch import Batch, Brief, play_batch
from noisemarket.learning.crew import batches, work_through
from noisemarket.mechanisms.base import Agreement, Contracts, Mechanism, Progress, Task, Trace

POLICIES_KEPT_UP_TO = 20_000
"""Owners up to which final policies are kept: 7 kB each."""


@dataclass(frozen=True)
class _Part:
    """A batch, with what is computed from its policies before they are let go."""

    batch: Batch
    contracts: Contracts
    owner_exploitability: FloatArray
    curator_exploitability: FloatArray


class Learned(Mechanism):
    """Lets a learning rule play both sides of every pair."""

    def __init__(self, rule: str) -> None:
        self.rule = rule

    def run(self, environment: Environment, task: Task) -> Agreement:
        owners = len(environment)
        brief = replace(task.brief, rule=self.rule, keep_policies=task.exploitability)
        keep = task.exploitability and owners <= POLICIES_KEPT_UP_TO
        contracts = Contracts(
            np.zeros(owners, np.int64), np.zeros(owners, np.int64), np.zeros(owners, bool)
        )
        done = np.zeros(owners, dtype=bool)
        gaps = np.full((2, owners), np.nan)
        parts: dict[int, Batch] = {}
        slices = batches(owners, brief.iterations)
        work = work_through(
            slices, lambda some: self._play(environment, brief, some), task.threads, task.stop
        )
        for number, part in work:
            some = slices[number]
            contracts.saving[some] = part.contracts.saving
            contracts.payment[some] = part.contracts.payment
            contracts.signed[some] = part.contracts.signed
            done[some] = True
            gaps[0, some] = part.owner_exploitability
            gaps[1, some] = part.curator_exploitability
            parts[number] = part.batch if keep else _without_policies(part.batch)
            task.watch(Progress(some, part.contracts, int(done.sum()), owners))
        ordered = [parts[number] for number in sorted(parts)]
        return Agreement(
            contracts=contracts,
            done=done,
            trace=_trace(ordered, brief, environment.levels, int(done.sum())),
            owner_exploitability=gaps[0] if task.exploitability else None,
            curator_exploitability=gaps[1] if task.exploitability else None,
            owner_policies=_stack([b.owner_policies for b in ordered]) if keep else None,
            curator_policies=_stack([b.curator_policies for b in ordered]) if keep else None,
        )

    @staticmethod
    def _play(environment: Environment, brief: Brief, some: slice) -> _Part:
        phases = [environment.games(i, some) for i in range(len(environment.phases))]
        starts = [phase.start for phase in environment.phases]
        batch = play_batch(brief, phases, starts, environment.population.key[some])
        now = sum(start < brief.iterations for start in starts) - 1
        outcomes = Outcomes.of(phases[now], batch.deals[:, 0], batch.deals[:, 1])
        nothing = np.full(len(batch.deals), np.nan)
        if not brief.keep_policies:
            return _Part(batch, Contracts.of(outcomes), nothing, nothing)
        gap = exploitability(
            batch.owner_policies,
            batch.curator_policies,
            phases[now],
            Outcomes.of(phases[now], batch.last[:, 0], batch.last[:, 1]),
            brief.settings.discount,
        )
        return _Part(batch, Contracts.of(outcomes), gap.owner, gap.curator)


def _without_policies(batch: Batch) -> Batch:
    none = np.empty((0, 0, 0))
    return replace(batch, owner_policies=none, curator_policies=none)


def _stack(policies: list[FloatArray]) -> FloatArray | None:
    return np.concatenate(policies) if policies else None


def _trace(parts: list[Batch], brief: Brief, levels: Levels, owners: int) -> Trace | None:
    if not parts:
        return None
    counts: IntArray = np.sum([part.counts for part in parts], axis=0)
    payoffs: FloatArray = np.sum([part.payoffs for part in parts], axis=0)
    ends = np.minimum(np.arange(1, brief.blocks + 1) * brief.trace_every, brief.iterations)
    plays = np.diff(ends, prepend=0) * owners
    saving_step, payment_step = levels.savings[1], levels.payments[1]
    offer, quote, saving, payment, deals = (counts[:, i] / plays for i in range(5))
    return Trace(
        iteration=ends,
        saving=saving * saving_step,
        payment=payment * payment_step,
        offer=offer * saving_step,
        quote=quote * payment_step,
        signed_share=deals,
        owner_reward=payoffs[:, 0] / plays,
        curator_reward=payoffs[:, 1] / plays,
    )
