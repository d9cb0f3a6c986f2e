"""Contracts by bisection: the paper's signed game, played by two sides that know it is monotone.

The rules of play are in ``learning/bisection_owner.py`` and ``learning/bisection_curator.py``. The
contract of a pair is what it signed last. Offers, quotes and signatures are the mechanism's own:
``game.protocol`` decides only what payoffs are counted from.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.game.outcomes import IntArray
from noisemarket.learning.batch import PlayConfig
from noisemarket.learning.bisection import bargain_batch
from noisemarket.learning.players import BISECTION
from noisemarket.learning.threads import batches, work_through
from noisemarket.mechanisms.by_message import MOST_MESSAGES
from noisemarket.mechanisms.lying import gained_over
from noisemarket.mechanisms.mechanism import (
    Agreement,
    Contracts,
    Mechanism,
    Progress,
    RunOptions,
    same_for_all,
)
from noisemarket.mechanisms.totals import TraceTotals

if TYPE_CHECKING:
    from noisemarket.learning.compiled.bisection_loop import Bargains


class Bisection(Mechanism):
    """Each offer at the least that its owner signs, found by bisection, owner by owner."""

    rule = BISECTION
    """What a game by messages calls it."""

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        # Numba is slow to import, and most markets do not learn; here, before threads want it.
        import_module("noisemarket.learning.compiled.bisection_loop")
        config, owners = options.play, len(environment)
        contracts, done = same_for_all(owners, 0, 0), np.zeros(owners, dtype=bool)
        totals, asked = TraceTotals(config), 0
        slices = batches(owners, config.iterations, environment.levels.shape[0])
        work = work_through(
            slices, lambda some: _play(environment, config, some), options.threads, options.stop
        )
        for number, played in work:
            some = slices[number]
            saving, payment = played.deals.T
            agreed = Contracts(saving.copy(), payment.copy(), saving + payment > 0)
            contracts.saving[some], contracts.payment[some] = agreed.saving, agreed.payment
            contracts.signed[some], done[some] = agreed.signed, True
            totals.enter(number, played.counts, played.payoffs)
            asked += int(_messages(played, config).sum())
            finished = int(done.sum())
            so_far = partial(totals.so_far, environment.levels, finished)
            options.watch(Progress(some, agreed, finished, owners, so_far))
        trace = totals.trace(environment.levels, int(done.sum()))
        count = max(int(done.sum()), 1)
        return Agreement(contracts, done, trace, messages=asked / count)

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray:
        """An owner that refuses all but the curator's limit ends there: nothing more is paid."""
        side, limits = environment.owner_side(), environment.curator_side().limits()
        best = np.zeros(len(environment))
        for saving, limit in enumerate(limits.T):
            one = np.full(len(best), saving), np.maximum(limit, 0)
            best = np.maximum(best, np.where(limit >= 0, side.surplus(*one), 0.0))
        return gained_over(side, agreement.contracts, best)


def _messages(played: Bargains, config: PlayConfig) -> IntArray:
    """Messages after which each pair is done by messages: a deal stands, or there are no more."""
    most = min(config.iterations, MOST_MESSAGES)
    return np.minimum(np.where(played.settled > 0, played.settled, most), most)


def _play(environment: Environment, config: PlayConfig, some: slice) -> Bargains:
    phases = range(len(environment.phases))
    return bargain_batch(
        config,
        [environment.owner_side(phase, some) for phase in phases],
        [environment.curator_side(phase, some) for phase in phases],
        [phase.start for phase in environment.phases],
        over_no_trade=environment.protocol == "signed",
    )
