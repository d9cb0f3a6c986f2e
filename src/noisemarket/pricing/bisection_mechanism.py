"""Contracts by bisection: the paper's signed game, played by two sides that know it is monotone.

The rules of play are in ``pricing/bisection_owner.py`` and ``pricing/bisection_curator.py``. The
contract of a pair is what it signed last. Proposals, quotes and signatures are the mechanism's own:
``game.protocol`` decides only what payoffs are counted from.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.pricing.batch import PlayConfig
from noisemarket.pricing.by_message import MOST_MESSAGES
from noisemarket.pricing.lying import gained_by_items
from noisemarket.pricing.mechanism import Agreement, Contracts, Mechanism, RunOptions
from noisemarket.pricing.players import BISECTION
from noisemarket.pricing.threads import batches, work_through
from noisemarket.pricing.totals import PlayTotals

if TYPE_CHECKING:
    from noisemarket.pricing.compiled.bisection_loop import Bargains


class Bisection(Mechanism):
    """Each proposal at the least that its owner signs, found by bisection, owner by owner."""

    rule = BISECTION
    """What a game by messages calls it."""

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        # Numba is slow to import, and most markets do not learn; here, before threads want it.
        import_module("noisemarket.pricing.compiled.bisection_loop")
        config, asked = options.play, 0
        slices = batches(len(environment), config.iterations, environment.levels.shape[0])
        totals = PlayTotals(environment, options, slices)
        work = work_through(
            slices, lambda some: _play(environment, config, some), options.threads, options.stop
        )
        for number, played in work:
            saving, payment = played.deals.T
            agreed = Contracts(saving.copy(), payment.copy(), saving + payment > 0)
            asked += int(_messages(played, config).sum())
            totals.enter(number, agreed, played.counts, played.payoffs)
        count = max(int(totals.done.sum()), 1)
        return Agreement(totals.contracts, totals.done, totals.trace(), messages=asked / count)

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray:
        """An owner that refuses all but the curator's limit ends there: nothing more is paid."""
        limits = environment.curator_side().limits()
        items = (
            (np.where(limit >= 0, saving, 0), np.maximum(limit, 0))
            for saving, limit in enumerate(limits.T)
        )
        return gained_by_items(environment.owner_side(), agreement.contracts, items)


def _messages(played: Bargains, config: PlayConfig) -> IntArray:
    """Messages after which each pair is done by messages: a deal stands, or there are no more."""
    most = min(config.iterations, MOST_MESSAGES)
    return np.minimum(np.where(played.settled > 0, played.settled, most), most)


def _play(environment: Environment, config: PlayConfig, some: slice) -> Bargains:
    from noisemarket.pricing.compiled.bisection_loop import bargain_batch

    phases = range(len(environment.phases))
    return bargain_batch(
        config,
        [environment.owner_side(phase, some) for phase in phases],
        [environment.curator_side(phase, some) for phase in phases],
        [phase.start for phase in environment.phases],
        over_no_trade=environment.protocol == "signed",
    )
