"""Tasks that are handed out to processes."""

import signal
from collections.abc import Callable
from multiprocessing.context import SpawnProcess

import numpy as np
import pytest

from noisemarket.market import worker_processes
from noisemarket.market.worker_processes import LARGE, in_processes

pytestmark = pytest.mark.training

Tell = Callable[[object], object]


def doubled(task: int, tell: Tell) -> int:
    return 2 * task


@pytest.mark.process
@pytest.mark.parametrize("workers", [-1, 0, 1])
def test_all_tasks_are_done_whatever_number_of_workers_is_given(workers: int) -> None:
    assert dict(in_processes(doubled, [1, 2], workers=workers)) == {1: 2, 2: 4}


@pytest.mark.process
def test_processes_start_where_signals_have_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.setattr("multiprocessing.resource_tracker._HAVE_SIGMASK", False)
    monkeypatch.delattr(signal, "pthread_sigmask")
    assert dict(in_processes(doubled, [1], workers=1)) == {1: 2}


def test_nothing_starts_without_tasks_or_for_work_that_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SpawnProcess, "start", lambda self: pytest.fail("it started"))
    assert list(in_processes(doubled, [])) == []
    with pytest.raises(Exception, match="pickle"):
        list(in_processes(lambda task, tell: task, [1]))


class Sums:
    """Sums a large array, and changes a small one of its own."""

    def __init__(self) -> None:
        self.large, self.small = np.arange(LARGE // 8), np.zeros(3)

    def __call__(self, task: int, tell: Tell) -> tuple[int, float, bool]:
        self.small += task
        return int(self.large.sum()), float(self.small[0]), self.large.flags.writeable


@pytest.mark.process
def test_processes_share_large_arrays_which_none_can_change() -> None:
    work = Sums()
    packed, large = worker_processes._packed(work)
    assert [array.nbytes for array in large.values()] == [work.large.nbytes]
    assert len(packed.content) < 1000
    [(_, answer)] = in_processes(work, [5], workers=1)
    assert answer == (int(work.large.sum()), 5.0, False)
    assert not work.small.any()
