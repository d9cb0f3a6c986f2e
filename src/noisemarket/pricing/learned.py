"""Contracts by learning: both sides play the game until they settle on a deal.

DyPP is this with WoLF-PHC; two-layer Q-learning and greedy are the paper's benchmarks. No learner
sees more than its own rewards and the moves of the other side.
"""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.errors import Interrupted
from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, FloatArray
from noisemarket.game.protocol import Contracts
from noisemarket.pricing.batch import PlayConfig, is_compiled, play_batch
from noisemarket.pricing.mechanism import Agreement, Mechanism, RunOptions
from noisemarket.pricing.players import game_rules, play_by_quotes
from noisemarket.pricing.rule import Rule
from noisemarket.pricing.totals import PlayTotals, batches, work_through

if TYPE_CHECKING:
    from noisemarket.game.exploitability import Exploitability
    from noisemarket.pricing.learning import Batch

POLICIES_KEPT_UP_TO = 20_000_000
"""Table cells of all owners up to which final policies are kept, 16 bytes each."""

MESSAGES_IN_A_GAME = 8
"""Messages to an owner in a game by messages, where the scenario does not say how many."""


class Learned(Mechanism):
    """Lets a learning rule play both sides of every pair."""

    def __init__(self, rule: str | type[Rule]) -> None:
        self.rule = rule

    @property
    def name(self) -> str:
        return self.rule if isinstance(self.rule, str) else self.rule.__name__

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        config, owners = options.play, len(environment)
        if options.asker is not None:
            rules = game_rules(environment, self.rule, config, messages_of(config))
            return play_by_quotes(environment, rules, options.asker, options)
        # Numba is slow to import, and most markets do not learn; here, before threads want it.
        import_module("noisemarket.game.exploitability")
        import_module("noisemarket.pricing.learning")
        savings, payments = environment.levels.shape
        cells = savings * payments
        keep = owners * cells <= POLICIES_KEPT_UP_TO
        gaps = np.full((2, owners), np.nan)
        kept: dict[int, Batch] = {}
        compiled = is_compiled(self.rule)
        slices = batches(owners, config.iterations, cells, compiled=compiled)
        totals = PlayTotals(environment, options, slices)
        cancelled = np.zeros(1, np.bool_)
        work = work_through(
            slices,
            lambda some: self._play(environment, config, some, cancelled),
            options.threads,
            options.stop,
            lambda: cancelled.fill(True),
        )
        with closing(work):
            for number, (batch, agreed, gap) in work:
                gaps[:, slices[number]] = gap.owner, gap.curator
                if keep:
                    kept[number] = batch
                totals.enter(number, agreed, batch.counts, batch.payoffs)
        ordered = [kept[number] for number in sorted(kept)]
        return Agreement(
            contracts=totals.contracts,
            done=totals.done,
            trace=totals.trace(),
            owner_exploitability=gaps[0],
            curator_exploitability=gaps[1],
            owner_policies=_stack([b.owner_policies for b in ordered]),
            curator_policies=_stack([b.curator_policies for b in ordered]),
            messages=float(-(-config.iterations // config.interactions_per_message)),
        )

    def _play(
        self,
        environment: Environment,
        config: PlayConfig,
        some: slice,
        cancelled: BoolArray,
    ) -> tuple[Batch, Contracts, Exploitability]:
        """A batch, with what is computed from its policies before they are dropped."""
        from noisemarket.game.exploitability import exploitability

        phases = [environment.games(i, some) for i in range(len(environment.phases))]
        starts = [phase.start for phase in environment.phases]
        keys = environment.population.key[some]
        batch = play_batch(self.rule, config, phases, starts, keys, cancelled)
        if cancelled[0]:
            raise Interrupted("cancelled.")
        now = sum(start < config.iterations for start in starts) - 1
        gap = exploitability(
            batch.owner_policies,
            batch.curator_policies,
            phases[now],
            batch.last,
            config.settings.discount,
        )
        return batch, Contracts.of(phases[now], *batch.deals.T), gap


def messages_of(config: PlayConfig) -> int:
    """Interactions in one message; where the scenario does not say, a game has 8 messages."""
    if config.interactions_per_message > 1:
        return config.interactions_per_message
    return max(2, -(-config.iterations // MESSAGES_IN_A_GAME))


def _stack(policies: list[FloatArray]) -> FloatArray | None:
    return np.concatenate(policies) if policies else None
