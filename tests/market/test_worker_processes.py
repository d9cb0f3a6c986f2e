"""Tasks that are handed out to processes."""

from collections.abc import Callable

import pytest

from noisemarket.market.worker_processes import WorkerProcesses, in_processes

pytestmark = pytest.mark.training

Tell = Callable[[object], object]


def doubled(task: int, tell: Tell) -> int:
    return 2 * task


@pytest.mark.process
@pytest.mark.parametrize("workers", [-1, 0, 1])
def test_all_tasks_are_done_whatever_number_of_workers_is_given(workers: int) -> None:
    assert dict(in_processes(doubled, [1, 2], workers=workers)) == {1: 2, 2: 4}


def test_nothing_starts_without_tasks_or_for_work_that_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []
    monkeypatch.setattr(WorkerProcesses, "start", lambda self, count, *more: started.append(count))
    assert list(in_processes(doubled, [])) == []
    assert started == [0]
    with pytest.raises(Exception, match="pickle"):
        list(in_processes(lambda task, tell: task, [1]))
    assert started == [0]
