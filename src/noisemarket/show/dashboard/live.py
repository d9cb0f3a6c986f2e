"""A run as it goes on: its files are read once, and all who watch it are told the same bytes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from noisemarket.errors import NoisemarketError
from noisemarket.market.baselines import BASELINES
from noisemarket.market.event_file import EVENTS, Tail
from noisemarket.market.market_folder import JOB
from noisemarket.show.dashboard.course import Course
from noisemarket.show.dashboard.run_store import SCENARIO, RunStore, UnknownRun

LOOK = 0.5
"""Seconds between two looks at the files of a run that is watched, at least."""

EASE = 20.0
"""How many times as long as a look took is waited before the next one."""

HEARTBEAT = 15.0
RETRY = b"retry: 1000\n\n"
"""How soon a browser connects again, in milliseconds."""

MOST_VIEWERS = 300
Stream = AsyncGenerator[bytes, None]


class TooManyViewers(NoisemarketError):
    """The server has as many open streams as it takes."""


class RunReader:
    """Follows the files of one run."""

    def __init__(self, store: RunStore, run: str) -> None:
        self._store, self._run = store, run
        self._identity: object = None
        self._step, self._first, self._last = "", (0, 0.0), (0, 0.0)
        self._forget()

    def _forget(self) -> None:
        self.course = Course()
        takers = {
            f"curator/{EVENTS}": self.course.take,  # of a market
            EVENTS: self.course.take,  # of a negotiation alone
            BASELINES: self.course.take_baseline,
        }
        folder = self._store.root / self._run
        self._files = [(name, Tail(folder / name, whole=True), takers[name]) for name in takers]

    def look(self) -> dict[str, Any]:
        """Read what is new, and say how the run stands.

        Raises:
            UnknownRun: its folder is gone.
            OSError: a file of it cannot be read.
        """
        status = self._store.status(self._run)
        identity = self._which()
        if identity != self._identity:  # another run has taken the folder's place
            self._identity = identity
            self._forget()
        for name, tail, take in self._files:
            if self._store.file(self._run, name):
                for line in tail.lines():
                    take(line)
        return self.course.document(status, self._seconds_left())

    def _which(self) -> object:
        """What tells this run from one that had the same folder before: files written once."""
        for name in (JOB, SCENARIO):
            if found := self._store.file(self._run, name):
                return name, found.stat().st_ino, found.stat().st_mtime_ns
        return None

    def _seconds_left(self) -> float | None:
        """What the step still takes, by how fast it went while it was watched."""
        done, total = self.course.progress()
        now = done, time.monotonic()
        if self._step != self.course.step or done < self._last[0]:
            self._step, self._first, self._last = self.course.step, now, now
        elif done > self._last[0]:
            self._last = now
        moved = self._last[0] - self._first[0]
        if not moved or not total:
            return None
        return round((self._last[1] - self._first[1]) / moved * max(0, total - done), 1)


class LiveHub:
    """All runs that are being watched."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._channels: dict[str, _Channel] = {}
        self.viewers = 0

    def follow(self, run: str) -> Stream:
        """How a run stands, as server-sent events: now, and whenever it changes.

        Raises:
            TooManyViewers: the server has enough of them.
            UnknownRun: there is no such run.
        """
        self._store.path(run)
        if self.viewers >= MOST_VIEWERS:
            raise TooManyViewers("Too many pages are watching runs: close some.")
        return self._stream(run)

    async def _stream(self, run: str) -> Stream:
        """Counted from its first message on: one that is never begun is never ended, either."""
        channel = self._channels.setdefault(run, _Channel(self._store, run))
        self.viewers += 1
        channel.viewers += 1
        try:
            async with aclosing(channel.messages()) as messages:
                async for message in messages:
                    yield message
        finally:
            self.viewers -= 1
            channel.viewers -= 1
            if not channel.viewers:
                channel.stop()
                if self._channels.get(run) is channel:
                    del self._channels[run]

    def close(self) -> None:
        """End all streams."""
        for channel in self._channels.values():
            channel.stop()


class _Channel:
    """One run, and all who watch it."""

    def __init__(self, store: RunStore, run: str) -> None:
        self._reader = RunReader(store, run)
        self._latest = b""
        self._turn = 0
        self._over = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.viewers = 0

    async def messages(self) -> Stream:
        """What is to be told, and now and then a sign that the server is there."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        seen = 0
        yield RETRY
        while True:
            changed = self._changed  # the one of now: the next message has another
            if seen != self._turn:
                seen = self._turn
                yield self._latest
            elif self._over:
                break
            else:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        await changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        yield b"event: gone\ndata: {}\n\n"

    async def _watch(self) -> None:
        """Look until the run is gone. What cannot be read now is said, and looked at again."""
        try:
            while True:
                began = time.monotonic()
                try:
                    document = await asyncio.to_thread(self._reader.look)
                    message = _event("state", document)
                except UnknownRun:
                    return
                except Exception as problem:
                    why = getattr(problem, "strerror", None) or type(problem).__name__
                    words = f"The files of this run cannot be read just now ({why})."
                    message = _event("trouble", {"problem": words})
                if message != self._latest:
                    self._latest, self._turn = message, self._turn + 1
                    self._tell()
                await asyncio.sleep(max(LOOK, EASE * (time.monotonic() - began)))
        finally:
            self._over = True
            self._tell()

    def _tell(self) -> None:
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _event(kind: str, document: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(document, allow_nan=False)}\n\n".encode()
