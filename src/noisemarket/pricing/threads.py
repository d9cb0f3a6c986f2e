"""Batches of owners on several threads; the compiled loop lets them run in parallel."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Result = TypeVar("Result")

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
