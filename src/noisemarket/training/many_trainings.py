"""Many trainings at once, each whole in one of a few processes that are started once."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import connection, get_context
from threading import Thread
from typing import Any, Protocol, TypeVar

from noisemarket.cores import available_cores
from noisemarket.errors import Interrupted, NoisemarketError
from noisemarket.owner.worker import end_with_parent, error_line, leave_unless_main
from noisemarket.training.local_engine import LOOK_EVERY, no_interrupts, one_thread

Task = TypeVar("Task")
Result = TypeVar("Result")
Task_in = TypeVar("Task_in", contravariant=True)
Result_out = TypeVar("Result_out", covariant=True)


class Work(Protocol[Task_in, Result_out]):
    """Does a task, and tells of its progress meanwhile; it can be sent to another process."""

    def __call__(self, task: Task_in, tell: Callable[[Any], object], /) -> Result_out: ...


def one_by_one(
    work: Work[Task, Result],
    tasks: Sequence[Task],
    told: Callable[[Task, Any], object] = lambda task, note: None,
) -> Iterator[tuple[Task, Result]]:
    """Do tasks in this process, one after another: for work that has processes of its own."""
    for task in tasks:
        yield task, work(task, partial(told, task))


def in_processes(
    work: Work[Task, Result],
    tasks: Sequence[Task],
    told: Callable[[Task, Any], object] = lambda task, note: None,
    *,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[Task, Result]]:
    """Do tasks in processes of one thread each, and give each with its result once it is done.

    Args:
        work: is sent to every process once.
        tasks: are handed out in this order to whoever is free.
        told: is given what the work tells of a task under way.
        workers: processes, by default one per core; never more than tasks.
        stop: when it returns True, what is under way is dropped.

    Raises:
        Interrupted: it was stopped.
        NoisemarketError: a task failed, or a process died.
    """
    leave_unless_main()
    count = max(1, min(workers or available_cores(), len(tasks)))
    pipes: list[connection.Connection] = []
    processes: list[Any] = []
    try:
        context, packed = get_context("spawn"), pickle.dumps(work)
        with one_thread(), no_interrupts():
            for _ in range(count if tasks else 0):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
        for pipe in pipes:
            pipe.send_bytes(packed)
        yield from _collect(pipes, tasks, told, stop)
    except (EOFError, OSError):
        raise NoisemarketError("A process died; what it was doing is lost.") from None
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.kill()
            process.join()


def _collect(
    pipes: Sequence[connection.Connection],
    tasks: Sequence[Task],
    told: Callable[[Task, Any], object],
    stop: Callable[[], bool] | None,
) -> Iterator[tuple[Task, Any]]:
    waiting = iter(tasks)
    doing: dict[connection.Connection, Task] = {}

    def hand_out(pipe: connection.Connection) -> None:
        for task in waiting:
            pipe.send(task)
            doing[pipe] = task
            return

    for pipe in pipes:
        hand_out(pipe)
    while doing:
        ready = connection.wait(list(doing), None if stop is None else LOOK_EVERY)
        if stop is not None and stop():
            raise Interrupted("stopped; what was finished is kept.")
        for one in ready:
            assert isinstance(one, connection.Connection)
            pipe = one
            kind, content = pipe.recv()
            if kind == "told":
                told(doing[pipe], content)
            elif kind == "failed":
                raise NoisemarketError(f"A process failed: {content}.")
            else:
                task = doing.pop(pipe)
                hand_out(pipe)
                yield task, content


def _serve(pipe: connection.Connection) -> None:
    """A process's life: do tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=end_with_parent, daemon=True).start()
    try:
        work = None
        packed = pipe.recv_bytes()
        while True:
            task = pipe.recv()
            try:
                work = work or pickle.loads(packed)
                reply = "done", work(task, lambda note: pipe.send(("told", note)))
            except Exception as problem:
                reply = "failed", error_line(problem)
            pipe.send(reply)
    except (EOFError, OSError):
        return
