"""Answers that many viewers ask for: computed once, kept until what they were made of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """The last answers. Who asks for one that is being computed waits for it, and the answers of
    one key are computed one after the other.

    Args:
        most: how many are kept; those that were asked for last stay.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._answers: dict[Hashable, tuple[Hashable, Future[Answer]]] = {}

    def get(self, key: Hashable, stamp: Hashable, make: Callable[[], Answer]) -> Answer:
        """The answer of that key; made anew if it is not known, or was made from another state.

        Args:
            key: what is asked for.
            stamp: the state of what the answer is made of, read before this is called.
            make: computes it. An error is passed on and not kept.
        """
        mine: Future[Answer] = Future()
        with self._lock:
            before = self._answers.pop(key, None)
            known = before if before and before[0] == stamp else (stamp, mine)
            self._answers[key] = known
            done = [one for one, (_, made) in self._answers.items() if made.done()]
            for one in done[: max(0, len(self._answers) - self._most)]:
                del self._answers[one]
        if known[1] is mine:
            try:
                if before:
                    wait([before[1]])
                mine.set_result(make())
            except BaseException as problem:
                with self._lock:
                    if self._answers.get(key) is known:
                        del self._answers[key]
                mine.set_exception(problem)
        return known[1].result()
