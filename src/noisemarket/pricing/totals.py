"""Batches of owners on several threads, and what their play amounts to."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.protocol import Contracts
from noisemarket.pricing.mechanism import Progress, RunOptions, Trace

Result = TypeVar("Result")

PROPOSALS, QUOTES, SAVINGS, PAYMENTS, DEALS = range(5)
"""Columns of ``Batch.counts``."""

_WORK_PER_BATCH = {True: 4_000_000, False: 20_000}  # pair-iterations, compiled and plain
_CELLS_PER_BATCH = 1_000_000
_LARGEST_BATCH = 512


def batches(owners: int, iterations: int, cells: int, *, compiled: bool = True) -> list[slice]:
    """Divide the owners into batches of some tenths of a second and some tens of megabytes each.

    ``cells`` is the size of a payoff table. The cut depends on nothing but these numbers, so that
    sums over batches come out the same with any number of threads.
    """
    by_work = _WORK_PER_BATCH[compiled] // iterations
    by_memory = _CELLS_PER_BATCH // cells
    size = max(1, min(_LARGEST_BATCH, by_work, by_memory, -(-owners // 16)))
    return [slice(at, min(at + size, owners)) for at in range(0, owners, size)]


def work_through(
    parts: list[slice],
    work: Callable[[slice], Result],
    threads: int,
    stop: Callable[[], bool] = lambda: False,
    cancel: Callable[[], None] = lambda: None,
) -> Generator[tuple[int, Result], None, None]:
    """Do ``work`` on every part; yields each result with its part's number when it is done.

    When ``stop`` returns True no new part is begun, and those that run are still finished and
    yielded. When an error ends this, or the consumer does (``close``), ``cancel`` is called: it has
    the running parts end soon, because nobody wants them.
    """
    waiting = iter(enumerate(parts))
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="noisemarket") as pool:
        running: dict[Future[Result], int] = {}

        def refill() -> None:
            while len(running) < 2 * threads and not stop():
                following = next(waiting, None)
                if following is None:
                    return
                running[pool.submit(work, following[1])] = following[0]

        try:
            refill()
            while running:
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
                if stop():
                    for future in [one for one in running if one.cancel()]:
                        del running[future]
                refill()
        except BaseException:
            cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class PlayTotals:
    """The contracts of the batches that are finished, and sums of their counts and payoffs.

    Threads finish batches in any order. One that is early waits for those before it, so that
    floating-point sums do not depend on timing.
    """

    def __init__(self, environment: Environment, options: RunOptions, parts: list[slice]) -> None:
        owners, blocks = len(environment), options.play.blocks
        self._levels, self._options, self._parts = environment.levels, options, parts
        self.contracts, self.done = Contracts.same(owners, 0, 0), np.zeros(owners, dtype=bool)
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
