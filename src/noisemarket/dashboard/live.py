"""A run as it goes on: the events of its folder, put together and passed on to who watches.

However many watch a run, its files are read once, and every one of them gets the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisemarket.dashboard.run_store import RUNNING, RunStore, UnknownRun
from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.checkpoint import read_result
from noisemarket.ledger.money import MICRO
from noisemarket.market.baselines import BASELINES, MARKET, NO_DP, UNIFORM
from noisemarket.market.event_file import BEGUN, ENDED, EVENTS, FAILED, NEGOTIATING, Tail, from_line
from noisemarket.market.events import (
    Accused,
    Broken,
    LeftOut,
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
    Signed,
)
from noisemarket.market.summary import deployed
from noisemarket.report.style import name_of

LOOK = 0.5
"""Seconds between two looks at the files of a run that is watched."""

HEARTBEAT = 15.0
MOST_POINTS = 400
MOST_VIEWERS = 300
_NOTES = 50
LABELS = {MARKET: "the market", UNIFORM: "no trade", NO_DP: "no noise"}


class TooManyViewers(NoisemarketError):
    """The server has as many open streams as it takes."""


class Course:
    """What the events of a run say so far."""

    def __init__(self) -> None:
        self.rounds: dict[int, tuple[float, float]] = {}
        self.begin()
        self.baselines: dict[str, dict[int, dict[int, float]]] = {}
        self.baselines_planned = 0

    def begin(self) -> None:
        """The market begins, or is taken up again: it tells all from the start of its steps."""
        self.step = "negotiating"
        self.owners = self.played = self.total = 0
        self.signed = self.paid = self.broken = self.left_out = 0
        self.paid_micro = 0
        self.agreed: int | None = None
        self.rounds_planned = 0
        self.notes: list[str] = []
        self.head: str | None = None
        self.problem: str | None = None

    def take(self, line: str) -> None:
        """One line of the events; a damaged one is passed over."""
        try:
            event = from_line(line)
        except BadInput:
            return
        match event:
            case Opened():
                self.owners, self.rounds_planned = event.owners, event.rounds
                self.step = "signing"
                if not event.resumed:
                    self.rounds = {}
            case Negotiated():
                self.agreed = event.agreed
            case Signed():
                self.signed += 1
            case LeftOut():
                self.left_out += 1
                self._note(f"Owner {event.owner} is left out: {event.reason}.")
            case RoundTrained(result=result):
                accuracy = deployed(result)
                self.step, self.rounds_planned = "training", event.rounds
                self.rounds[result.number] = (float(accuracy or 0.0), result.seconds)
            case Accused():
                self._note(f"Owner {event.owner}, round {event.round}: {event.reason}; refused.")
            case Paid():
                self.paid, self.paid_micro = self.paid + 1, self.paid_micro + event.amount
            case Broken():
                self.broken += 1
            case Settled():
                self.step, self.head = "settled", event.head
            case dict():
                self._take_note(str(event["kind"]), event)

    def _take_note(self, kind: str, values: dict[str, Any]) -> None:
        if kind == BEGUN:
            self.begin()
        elif kind == NEGOTIATING:
            self.played, self.total = int(values["done"]), int(values["total"])
        elif kind == FAILED:
            self.problem = str(values["problem"])
        elif kind == ENDED:
            self.step = "settled"

    def take_baseline(self, line: str) -> None:
        """A round of what the market is compared with, or how many there will be."""
        try:
            values = json.loads(line)
            if "baseline" not in values:
                self.step, self.baselines_planned = "comparing", int(values["rounds"])
                return
            result = read_result(values["result"])
            name, draw = str(values["baseline"]), int(values["draw"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        self.step = "comparing"
        accuracy = float(deployed(result) or 0.0)
        self.baselines.setdefault(name, {}).setdefault(draw, {})[result.number] = accuracy

    def _note(self, words: str) -> None:
        self.notes = [*self.notes[1 - _NOTES :], words]

    def progress(self) -> tuple[int, int]:
        """How much of the step is done, and how much there is."""
        if self.step == "negotiating":
            return self.played, self.total
        if self.step == "signing":
            return self.signed, self.owners
        if self.step == "comparing":
            runs = (run for draws in self.baselines.values() for run in draws.values())
            return sum(map(len, runs)), self.baselines_planned
        return len(self.rounds), self.rounds_planned

    def document(self, status: dict[str, Any], seconds_left: float | None) -> dict[str, Any]:
        """All of it, for a page."""
        running = status["state"] == RUNNING
        done, total = self.progress()
        return {
            "state": status["state"],
            "problem": None if running else status.get("problem") or self.problem,
            "step": self.step,
            "progress": {
                "done": done,
                "total": total,
                "seconds_left": seconds_left if running else None,
            },
            "compares": status.get("baselines", True) is not False,
            "owners": self.owners,
            "signed": self.signed,
            "agreed": self.agreed,
            "left_out": self.left_out,
            "contracts_paid": self.paid,
            "contracts_broken": self.broken,
            "paid": self.paid_micro / MICRO,
            "round": max(self.rounds, default=0),
            "rounds": self.rounds_planned,
            "accuracy": [*self._accuracy()],
            "notes": self.notes,
            "ledger_head": self.head,
        }

    def _accuracy(self) -> Iterator[dict[str, Any]]:
        """A curve for the market, and one for each thing that it is compared with."""
        own = {number: accuracy for number, (accuracy, _) in self.rounds.items()}
        for name in dict.fromkeys((MARKET, UNIFORM, NO_DP, *self.baselines)):
            runs = [*([own] if name == MARKET else []), *self.baselines.get(name, {}).values()]
            if found := _series(runs):
                yield {"name": name, "label": LABELS.get(name) or name_of(name), **found}


def _series(runs: list[dict[int, float]]) -> dict[str, Any] | None:
    """Mean, lowest and highest of several draws over the rounds that each has; few points."""
    known = [run for run in runs if run]
    if not known:
        return None
    rounds = sorted(known[0])
    step = -(-len(rounds) // MOST_POINTS)
    some = sorted({*rounds[::step], rounds[-1]})
    values = [[run[number] for run in known if number in run] for number in some]
    return {
        "round": some,
        "mean": [round(float(np.mean(each)), 3) for each in values],
        "low": [round(min(each), 3) for each in values],
        "high": [round(max(each), 3) for each in values],
        "draws": len(known),
    }


class RunReader:
    """Follows the files of one run."""

    def __init__(self, store: RunStore, run: str) -> None:
        self._store, self._run = store, run
        self._identity: object = None
        self._pace: _Pace | None = None
        self._forget()

    def _forget(self) -> None:
        folder = self._store.root / self._run
        self.course = Course()
        self._events = Tail(folder / "curator" / EVENTS, whole=True)
        self._rounds = Tail(folder / BASELINES, whole=True)

    def look(self) -> dict[str, Any]:
        """Read what is new, and say how the run stands.

        Raises:
            UnknownRun: its folder is gone.
        """
        status = self._store.status(self._run)
        manifest = self._store.file(self._run, "market.json")
        identity = manifest.stat().st_ino if manifest else None
        if identity != self._identity:  # another run has taken the folder's place
            self._identity = identity
            self._forget()
        if self._store.file(self._run, "curator", EVENTS):
            for line in self._events.lines():
                self.course.take(line)
        if self._store.file(self._run, *BASELINES.split("/")):
            for line in self._rounds.lines():
                self.course.take_baseline(line)
        return self.course.document(status, self._seconds_left())

    def _seconds_left(self) -> float | None:
        """What the step still takes, by how fast it went while it was watched."""
        done, total = self.course.progress()
        step, now = self.course.step, time.monotonic()
        if self._pace is None or self._pace.step != step or done < self._pace.now:
            self._pace = _Pace(step, done, now, done, now)
        elif done > self._pace.now:
            self._pace = replace(self._pace, now=done, at=now)
        pace = self._pace
        if pace.now == pace.first or not total:
            return None
        each = (pace.at - pace.began) / (pace.now - pace.first)
        return round(each * max(0, total - done), 1)


@dataclass(frozen=True)
class _Pace:
    """How much of a step was done when it was first and last seen to have moved."""

    step: str
    first: int
    began: float
    now: int
    at: float


class LiveHub:
    """All runs that are being watched."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._channels: dict[str, _Channel] = {}
        self.viewers = 0

    async def follow(self, run: str) -> AsyncIterator[bytes]:
        """How a run stands, as server-sent events: now, and whenever it changes.

        Raises:
            TooManyViewers: the server has enough of them.
            UnknownRun: there is no such run.
        """
        self._store.path(run)
        if self.viewers >= MOST_VIEWERS:
            raise TooManyViewers("Too many pages are watching runs: close some.")
        channel = self._channels.setdefault(run, _Channel(self._store, run))
        self.viewers += 1
        return self._stream(run, channel)

    async def _stream(self, run: str, channel: _Channel) -> AsyncIterator[bytes]:
        try:
            async for message in channel.messages():
                yield message
        finally:
            self.viewers -= 1
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
        self._over = False
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.viewers = 0

    async def messages(self) -> AsyncIterator[bytes]:
        self.viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        sent = b""
        try:
            while not self._over or sent != self._latest:
                if sent != self._latest:
                    sent = self._latest
                    yield b"event: state\ndata: " + sent + b"\n\n"
                    continue
                try:
                    async with asyncio.timeout(HEARTBEAT), self._changed:
                        await self._changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
            yield b"event: gone\ndata: {}\n\n"
        finally:
            self.viewers -= 1

    async def _watch(self) -> None:
        try:
            while True:
                document = await asyncio.to_thread(self._reader.look)
                latest = json.dumps(document, allow_nan=False).encode()
                if latest != self._latest:
                    self._latest = latest
                    await self._tell()
                await asyncio.sleep(LOOK)
        except UnknownRun:
            pass
        finally:
            self._over = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
