"""Answers that many viewers ask for: computed once, kept until what they were made of changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """The last answers. Who asks for one that is being computed waits for it.

    Args:
        most: how many are kept; those that were asked for last stay.
    """

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._answers: OrderedDict[Hashable, tuple[Hashable, Answer]] = OrderedDict()
        self._busy: dict[Hashable, tuple[threading.Lock, int]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, stamp: Hashable, make: Callable[[], Answer]) -> Answer:
        """The answer of that key; made anew if it is not known, or was made from another state.

        Args:
            key: what is asked for.
            stamp: the state of what the answer is made of, read before this is called.
            make: computes it. An error is passed on and not kept.
        """
        with self._lock:
            turn, waiting = self._busy.get(key, (threading.Lock(), 0))
            self._busy[key] = turn, waiting + 1
        try:
            with turn:
                with self._lock:
                    known = self._answers.get(key)
                if known is None or known[0] != stamp:
                    known = stamp, make()
                with self._lock:
                    self._answers[key] = known
                    self._answers.move_to_end(key)
                    while len(self._answers) > self._most:
                        self._answers.popitem(last=False)
                return known[1]
        finally:
            with self._lock:
                waiting = self._busy[key][1] - 1
                if waiting:
                    self._busy[key] = turn, waiting
                else:
                    del self._busy[key]
