"""The trace of a play, summed up over batches of owners."""

from __future__ import annotations

import numpy as np

from noisemarket.game.levels import FloatArray, IntArray, Levels
from noisemarket.learning.batch import PlayConfig
from noisemarket.learning.compiled.arguments import DEALS, OFFERS, PAYMENTS, QUOTES, SAVINGS
from noisemarket.mechanisms.mechanism import Trace


class TraceTotals:
    """Sums of the batches' counts and payoffs, added in the order of the batches.

    Threads finish batches in any order. One that is early waits for those before it, so that
    floating-point sums do not depend on timing.
    """

    def __init__(self, config: PlayConfig) -> None:
        self._config = config
        self._counts = np.zeros((config.blocks, 5), np.int64)
        self._payoffs = np.zeros((config.blocks, 2))
        self._early: dict[int, tuple[IntArray, FloatArray]] = {}
        self._next = 0

    def enter(self, number: int, counts: IntArray, payoffs: FloatArray) -> None:
        """Take in the batch of that number (``Batch`` says what is counted)."""
        self._early[number] = (counts, payoffs)
        while self._next in self._early:
            self._add(self._next)
            self._next += 1

    def _add(self, number: int) -> None:
        counts, payoffs = self._early.pop(number)
        self._counts += counts
        self._payoffs += payoffs

    def trace(self, levels: Levels, owners: int) -> Trace | None:
        """The means over all owners that were finished, at the end."""
        for number in sorted(self._early):
            self._add(number)
        return self._means(self._counts, self._payoffs, levels, owners)

    def so_far(self, levels: Levels, owners: int) -> Trace | None:
        """The means over the owners that are finished by now. What comes at the end stays as it is.

        Args:
            levels: the levels that were played.
            owners: how many owners are finished, those of early batches included.
        """
        early = [self._early[number] for number in sorted(self._early)]
        counts = sum((one for one, _ in early), start=self._counts)
        payoffs = sum((one for _, one in early), start=self._payoffs)
        return self._means(counts, payoffs, levels, owners)

    def _means(
        self, counts: IntArray, payoffs: FloatArray, levels: Levels, owners: int
    ) -> Trace | None:
        if owners == 0:
            return None
        config = self._config
        ends = np.minimum(np.arange(1, config.blocks + 1) * config.trace_every, config.iterations)
        plays = np.diff(ends, prepend=0) * owners
        saving_step, payment_step = levels.savings[1], levels.payments[1]
        return Trace(
            iteration=ends,
            saving=counts[:, SAVINGS] / plays * saving_step,
            payment=counts[:, PAYMENTS] / plays * payment_step,
            offer=counts[:, OFFERS] / plays * saving_step,
            quote=counts[:, QUOTES] / plays * payment_step,
            signed_share=counts[:, DEALS] / plays,
            owner_reward=payoffs[:, 0] / plays,
            curator_reward=payoffs[:, 1] / plays,
        )
