"""Worker processes: started once, with one thread each, and given one task after another.

``in_processes`` does many trainings at once, each whole in one process; ``LocalEngine`` does one
training, with its owners shared out.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import connection, get_context, parent_process, process, resource_tracker
from multiprocessing.sharedctypes import RawArray
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.machine import available_cores

Task = TypeVar("Task")
Result = TypeVar("Result")
Work = Callable[[Task, Callable[[Any], object]], Result]
"""Does a task, and tells of its progress meanwhile; it can be sent to another process."""

LOOK_EVERY = 0.2
"""Seconds between two looks at whether to stop."""

UNGUARDED = 87
"""Exit code of a worker that was about to start workers itself."""

LARGE = 2**20
"""Bytes of an array from which on the processes of ``in_processes`` share it."""

_STOPPED = "stopped; what was finished is kept."
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLIBC_TUNABLES": (
        "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"
    ),
}


@dataclass(frozen=True)
class _Note:
    """Progress of a task under way."""

    content: Any


def in_processes(
    work: Work[Task, Result],
    tasks: Sequence[Task],
    told: Callable[[Task, Any], object] = lambda task, note: None,
    *,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[Task, Result]]:
    """Do tasks in processes of one thread each, and give each with its result once it is done.

    ``work`` is sent to every process once, ``told`` is given what it tells of a task under way.
    """
    packed, large = _packed(work)
    count = min(max(1, workers or available_cores()), len(tasks))
    processes = WorkerProcesses(count, packed, large, stop)
    try:
        yield from processes.answers(tasks, told)
    finally:
        processes.close(patience=0.0)


@dataclass(frozen=True)
class _Packed:
    """Work whose large arrays lie elsewhere: called with these, it gives the work."""

    content: bytes

    def __call__(self, views: Mapping[str, NDArray[Any]]) -> Any:
        for view in views.values():
            view.setflags(write=False)
        return pickle.loads(self.content, buffers=views.values())


def _packed(work: Any) -> tuple[_Packed, dict[str, NDArray[Any]]]:
    """Work to be sent, and the large arrays in it, which no process needs a copy of."""
    large: dict[str, NDArray[Any]] = {}

    def kept_in(buffer: pickle.PickleBuffer) -> bool:
        array = np.frombuffer(buffer.raw(), np.uint8)
        if array.size >= LARGE:
            large[str(len(large))] = array
        return array.size < LARGE

    return _Packed(pickle.dumps(work, protocol=5, buffer_callback=kept_in)), large


def check_sendable(field: str, value: object) -> None:
    """Refuse what cannot be sent to a worker process, such as a lambda."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        name = getattr(value, "__qualname__", None) or type(value).__qualname__
        raise BadInput(
            field,
            name,
            "cannot be sent to worker processes: give a class or function from the top level of a "
            "file, or functools.partial of one; no lambda and nothing defined inside a function.",
        ) from None


class WorkerProcesses:
    """Processes of one thread each, which do tasks of one kind.

    ``make``, called in each of them with the shared ``arrays``, gives the work. Any failure ends
    them all: answers that are still on their way would be taken for those of the next tasks.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[Mapping[str, NDArray[Any]]], Work[Any, Any]],
        arrays: Mapping[str, NDArray[Any]],
        stop: Callable[[], bool] | None = None,
    ) -> None:
        leave_unless_main()
        self.running: list[Any] = []
        self._pipes: list[connection.Connection] = []
        self._stop, self._answered = stop, False
        packed, shared, context = pickle.dumps(make), SharedArrays(arrays), get_context("spawn")
        self.views = shared.views
        try:
            with _one_thread(), _no_interrupts():
                for _ in range(count):
                    ours, theirs = context.Pipe()
                    worker = context.Process(target=_serve, args=(theirs, shared), daemon=True)
                    worker.start()
                    theirs.close()
                    self.running.append(worker)
                    self._pipes.append(ours)
        except BaseException:
            self.close(patience=0.0)
            raise
        with self._all_or_none():
            for pipe in self._pipes:
                pipe.send_bytes(packed)

    def answers(
        self, tasks: Sequence[Task], told: Callable[[Task, Any], object] = lambda task, note: None
    ) -> Iterator[tuple[Task, Any]]:
        """Hand out tasks to free workers, and give each with its answer.

        When ``stop`` returns True, what is under way is dropped, and ``Interrupted`` raised.
        """
        waiting = iter(tasks)
        doing: dict[connection.Connection, Task] = {}

        def hand_out(pipe: connection.Connection) -> None:
            for task in waiting:
                pipe.send(task)
                doing[pipe] = task
                return

        with self._all_or_none():
            for pipe in self._pipes:
                hand_out(pipe)
            while doing:
                ready = connection.wait(list(doing), None if self._stop is None else LOOK_EVERY)
                if self._stop is not None and self._stop():
                    raise Interrupted(_STOPPED)
                for one in ready:
                    assert isinstance(one, connection.Connection)
                    reply = one.recv()
                    self._answered = True
                    if isinstance(reply, _Note):
                        told(doing[one], reply.content)
                        continue
                    problem, answer = reply
                    if problem is not None:
                        raise NoisemarketError(f"A worker failed: {problem}.")
                    task = doing.pop(one)
                    hand_out(one)
                    yield task, answer

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """End all processes if anything fails, and say what happened to one that is gone."""
        try:
            yield
        except (EOFError, OSError):
            death = self._death()
            self.close(patience=0.0)
            raise death from None
        except BaseException:
            self.close(patience=0.0)
            raise

    def _death(self) -> NoisemarketError:
        """What to say about workers of which at least one is gone."""
        if self._stop is not None and self._stop():
            return Interrupted(_STOPPED)
        for worker in self.running:
            worker.join(timeout=1)
        codes = {worker.exitcode for worker in self.running}
        if UNGUARDED in codes:
            return NoisemarketError(
                "Training starts processes that import your script, which must not train again in "
                "them: put the call under if __name__ == '__main__'."
            )
        if 1 in codes and not self._answered:
            return NoisemarketError(
                "A worker process could not start; it said why on standard error. Training must be "
                "called from a file that can be imported, under if __name__ == '__main__'."
            )
        return NoisemarketError("A worker process died; its unfinished work is lost.")

    def close(self, patience: float = 5.0) -> None:
        """Close the pipes, and kill what is still at work after so many seconds each."""
        for pipe in self._pipes:
            pipe.close()
        for worker in self.running:
            worker.join(timeout=patience)
            if worker.is_alive():
                worker.kill()
                worker.join()
        self.running, self._pipes, self.views = [], [], {}


def leave_unless_main() -> None:
    """End a worker that, importing a script without ``if __name__ == "__main__"``, is about to
    start workers itself; the parent knows the exit code."""
    if getattr(process.current_process(), "_inheriting", False):
        sys.exit(UNGUARDED)


def _serve(pipe: connection.Connection, shared: SharedArrays) -> None:
    """A worker's life: do tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        work = None
        packed = pipe.recv_bytes()
        while True:
            task = pipe.recv()
            try:
                work = work or _unpacked(packed, shared)
                reply: tuple[str | None, Any] = None, work(task, lambda n: pipe.send(_Note(n)))
            except Exception as problem:
                reply = _error_line(problem), None
            pipe.send(reply)
    except (EOFError, OSError):
        return


def _unpacked(packed: bytes, shared: SharedArrays) -> Work[Any, Any]:
    try:
        work: Work[Any, Any] = pickle.loads(packed)(shared.views)
    except (AttributeError, ImportError) as problem:
        raise NoisemarketError(
            f"{problem}; workers import the model, so put it into a file and import it from there"
        ) from None
    return work


def _end_with_parent() -> None:
    """Wait for the parent's end, and end this process with it, whatever it is doing."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _error_line(problem: Exception) -> str:
    kind = "" if isinstance(problem, NoisemarketError) else f"{type(problem).__name__}: "
    return " ".join(f"{kind}{problem}".split()).rstrip(".")


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C is for the parent alone: processes started meanwhile never see it, not even while
    they start; here it waits. Windows has no such mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # begun later, it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that are started meanwhile compute with one thread each."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_APART = 64  # bytes: where arrays begin, so that none shares a line of the cache


class SharedArrays:
    """Copies of arrays by name, in one block of memory that worker processes can map.

    The block has no name in any file system, so that a killed group leaves no records behind. It
    can be an argument of a process that ``multiprocessing`` starts; nowhere else can it be pickled.
    OSError if there is not enough memory.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._layout, at = dict[str, tuple[int, tuple[int, ...], str]](), 0
        for name, array in arrays.items():
            self._layout[name] = at, array.shape, array.dtype.str
            at += -(-array.nbytes // _APART) * _APART
        self._block = RawArray(ctypes.c_ubyte, at + _APART)
        for name, array in arrays.items():
            self.views[name][...] = array

    @cached_property
    def views(self) -> dict[str, NDArray[Any]]:
        """The arrays themselves, by name: what one process writes, all see."""
        first, block = -ctypes.addressof(self._block) % _APART, memoryview(self._block)
        return {
            name: np.ndarray(shape, dtype, buffer=block, offset=first + at)
            for name, (at, shape, dtype) in self._layout.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        return {"_layout": self._layout, "_block": self._block}
