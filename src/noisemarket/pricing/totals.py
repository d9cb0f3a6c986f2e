"""What is finished of a play: contracts, and the trace summed up over batches of owners."""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.pricing.mechanism import Contracts, Progress, RunOptions, Trace, same_for_all


class PlayTotals:
    """The contracts of the batches that are finished, and sums of their counts and payoffs.

    Threads finish batches in any order. One that is early waits for those before it, so that
    floating-point sums do not depend on timing.
    """

    def __init__(self, environment: Environment, options: RunOptions, parts: list[slice]) -> None:
        owners, blocks = len(environment), options.play.blocks
        self._levels, self._options, self._parts = environment.levels, options, parts
        self.contracts, self.done = same_for_all(owners, 0, 0), np.zeros(owners, dtype=bool)
        self._counts, self._payoffs = np.zeros((blocks, 5), np.int64), np.zeros((blocks, 2))
        self._early: dict[int, tuple[IntArray, FloatArray]] = {}
        self._next = 0

    def enter(self, number: int, agreed: Contracts, counts: IntArray, payoffs: FloatArray) -> None:
        """Take in the batch of that number (``Batch`` says what is counted), and tell of it."""
        some = self._parts[number]
        self.contracts.saving[some], self.contracts.payment[some] = agreed.saving, agreed.payment
        self.contracts.signed[some], self.done[some] = agreed.signed, True
        self._early[number] = (counts, payoffs)
        while self._next in self._early:
            more, paid = self._early.pop(self._next)
            self._counts += more
            self._payoffs += paid
            self._next += 1
        done = int(self.done.sum())
        self._options.watch(Progress(some, agreed, done, len(self.done), self.trace))

    def trace(self) -> Trace | None:
        """The means over the owners that are finished by now, those of early batches included."""
        from noisemarket.pricing.learning import DEALS, PAYMENTS, PROPOSALS, QUOTES, SAVINGS

        owners = int(self.done.sum())
        if owners == 0:
            return None
        early = [self._early[number] for number in sorted(self._early)]
        counts = sum((one for one, _ in early), start=self._counts)
        payoffs = sum((one for _, one in early), start=self._payoffs)
        play = self._options.play
        ends = np.minimum(np.arange(1, play.blocks + 1) * play.trace_every, play.iterations)
        plays = np.diff(ends, prepend=0) * owners
        saving_step, payment_step = self._levels.savings[1], self._levels.payments[1]
        return Trace(
            iteration=ends,
            saving=counts[:, SAVINGS] / plays * saving_step,
            payment=counts[:, PAYMENTS] / plays * payment_step,
            proposal=counts[:, PROPOSALS] / plays * saving_step,
            quote=counts[:, QUOTES] / plays * payment_step,
            signed_share=counts[:, DEALS] / plays,
            owner_reward=payoffs[:, 0] / plays,
            curator_reward=payoffs[:, 1] / plays,
        )
