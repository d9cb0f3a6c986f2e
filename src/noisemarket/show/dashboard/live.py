"""A run as it goes on: its files are read once, and all viewers are told the same."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from noisemarket.errors import BadInput
from noisemarket.federated.rounds import RoundResult, read_result
from noisemarket.ledger.money import MICRO
from noisemarket.market import events
from noisemarket.market.baselines import BASELINES, MARKET, NO_DP, UNIFORM
from noisemarket.market.events import (
    EVENTS,
    Accused,
    Broken,
    Event,
    LeftOut,
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
    Signed,
    Tail,
)
from noisemarket.market.run_folder import JOB
from noisemarket.market.summary import deployed
from noisemarket.show.dashboard.run_store import RUNNING, SCENARIO, RunStore
from noisemarket.show.style import name_of

LOOK = 0.5
"""Seconds between two looks at the files of a run that is watched, at least."""

EASE = 20.0
"""The pause after a look is at least this many times its duration."""

MOST_POINTS = 400
Point = TypeVar("Point")
_NOTES = 50
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""Errors of a line that is no event of a market."""


class RunProgress:
    """State of a run, from its events so far."""

    def __init__(self) -> None:
        self.rounds: dict[int, float] = {}
        self.begin()
        self.baselines: dict[str, dict[int, dict[int, float]]] = {}
        self.baselines_planned = 0

    def begin(self) -> None:
        """The market begins, or resumes: either way it reports every step from the first."""
        self.step = "negotiating"
        self.owners = self.played = self.total = 0
        self.signed = self.paid = self.paid_micro = self.broken = self.left_out = 0
        self.agreed: int | None = None
        self.rounds_planned = 0
        self.notes: list[str] = []
        self.problem: str | None = None
        self.learned: dict[str, list[float]] | None = None

    def read(self, line: str) -> None:
        """One line of the events; a damaged one is passed over."""
        with suppress(BadInput, *_DAMAGED):
            self._apply(events.from_line(line))

    def _apply(self, event: Event | dict[str, Any]) -> None:
        match event:
            case Opened():
                self.owners, self.rounds_planned = int(event.owners), int(event.rounds)
                self.step = "signing"
                if not event.resumed:
                    self.rounds = {}
            case Negotiated():
                self.agreed, self.learned = int(event.agreed), None
            case Signed():
                self.signed += 1
            case LeftOut():
                self.left_out += 1
                self._note(f"Owner {event.owner} is left out: {event.reason}.")
            case RoundTrained(result=result):
                self.rounds[int(result.number)] = _accuracy_of(result)
                self.step, self.rounds_planned = "training", int(event.rounds)
            case Accused():
                self._note(f"Owner {event.owner}, round {event.round}: {event.reason}; refused.")
            case Paid():
                self.paid, self.paid_micro = self.paid + 1, self.paid_micro + int(event.amount)
            case Broken():
                self.broken += 1
            case Settled() | {"kind": events.ENDED}:
                self.step = "settled"
            case {"kind": events.BEGUN}:
                self.begin()
            case {"kind": events.NEGOTIATING, "done": done, "total": total, **more}:
                self.played, self.total = int(done), int(total)
                if isinstance(trace := more.get("trace"), dict):
                    self.learned = _points(trace)
            case {"kind": events.FAILED, "problem": problem}:
                self.problem = str(problem)

    def read_baseline(self, line: str) -> None:
        """A round of a baseline, or how many rounds there will be."""
        try:
            values = json.loads(line)
            if "baseline" not in values:
                self.step, self.baselines_planned = "comparing", int(values["rounds"])
                return
            result = read_result(values["result"])
            accuracy, number = _accuracy_of(result), int(result.number)
            name, draw = str(values["baseline"]), int(values["draw"])
        except _DAMAGED:
            return
        self.step = "comparing"
        self.baselines.setdefault(name, {}).setdefault(draw, {})[number] = accuracy

    def _note(self, words: str) -> None:
        self.notes = [*self.notes[1 - _NOTES :], words]

    def done_of_total(self) -> tuple[int, int]:
        """How much of the step is done, and how much there is; 0 of 0 while workers start."""
        if self.step == "negotiating":
            return self.played, self.total
        if self.step == "signing":
            over = self.signed + self.left_out >= self.owners
            return (0, 0) if over else (self.signed, self.owners)
        if self.step == "comparing":
            runs = (run for draws in self.baselines.values() for run in draws.values())
            done = sum(map(len, runs))
            return done, self.baselines_planned if done else 0
        return len(self.rounds), self.rounds_planned

    def document(self, status: dict[str, Any], seconds_left: float | None) -> dict[str, Any]:
        """All of it, for a page."""
        running = status["state"] == RUNNING
        done, total = self.done_of_total()
        return {
            "state": status["state"],
            "problem": None if running else status.get("problem") or self.problem,
            "step": self.step if total or self.step == "negotiating" else "starting",
            "progress": {
                "done": done,
                "total": total,
                "seconds_left": seconds_left if running else None,
            },
            "compares": status.get("baselines", True) is not False,
            "signed": self.signed,
            "agreed": self.agreed,
            "learned": self.learned,
            "left_out": self.left_out,
            "contracts_paid": self.paid,
            "contracts_broken": self.broken,
            "paid": self.paid_micro / MICRO,
            "round": max(self.rounds, default=0),
            "rounds": self.rounds_planned,
            "accuracy": [*self._accuracy()],
            "notes": self.notes,
        }

    def _accuracy(self) -> Iterator[dict[str, Any]]:
        """A curve for the market, and one for each baseline."""
        for name in dict.fromkeys((MARKET, UNIFORM, NO_DP, *self.baselines)):
            own = [self.rounds] if name == MARKET else []
            if found := _series([*own, *self.baselines.get(name, {}).values()]):
                yield {"name": name, "label": name_of(name), **found}


def _series(runs: list[dict[int, float]]) -> dict[str, Any] | None:
    """Mean, lowest and highest of several draws over the rounds that each has; few points."""
    known = [run for run in runs if run]
    if not known:
        return None
    some = thinned(sorted(known[0]), MOST_POINTS)
    values = [[run[number] for run in known if number in run] for number in some]
    return {
        "round": some,
        "mean": [round(sum(each) / len(each), 3) for each in values],
        "low": [round(min(each), 3) for each in values],
        "high": [round(max(each), 3) for each in values],
        "draws": len(known),
    }


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """About as many points as that, evenly, from the first to the last."""
    step = max(1, -(-len(points) // most))
    return [*points[:-1:step], *points[-1:]]


def _accuracy_of(result: RoundResult) -> float:
    """The accuracy of a round's model, in per cent."""
    accuracy = float(deployed(result) or 0.0)
    if not math.isfinite(accuracy):
        raise ValueError("not a number")
    return accuracy


def _points(trace: dict[str, Any]) -> dict[str, list[float]]:
    """The points of a game that is being learned: as many of each name, all of them numbers."""
    names = ("iteration", "saving", "payment")
    columns = [[*map(float, trace[name])][:MOST_POINTS] for name in names]
    if len({*map(len, columns)}) != 1 or not all(map(math.isfinite, chain(*columns))):
        raise ValueError("not the points of a trace")
    return dict(zip(names, columns, strict=True))


class RunReader:
    """Follows the files of one run, for all who watch it."""

    def __init__(self, store: RunStore, run: str) -> None:
        self._store, self._run = store, run
        self._turn, self._next_look = threading.Lock(), 0.0
        self._seen: dict[str, Any] = {}
        self._identity: object = None
        self._step, self._first, self._last = "", (0, 0.0), (0, 0.0)
        self._forget()

    def _forget(self) -> None:
        self.progress = RunProgress()
        readers = {
            f"curator/{EVENTS}": self.progress.read,  # of a market
            EVENTS: self.progress.read,  # of a negotiation alone
            BASELINES: self.progress.read_baseline,
        }
        folder = self._store.folder(self._run)
        self._files = [(name, Tail(folder / name, whole=True), readers[name]) for name in readers]

    def state(self) -> dict[str, Any]:
        """How the run stands, by a look that is not too old."""
        with self._turn:
            began = time.monotonic()
            if began >= self._next_look:
                try:
                    self._seen = self.look()
                except OSError as problem:
                    why = f"cannot be read just now ({problem.strerror})."
                    raise BadInput("run", self._run, why) from None
                ended = time.monotonic()
                self._next_look = ended + max(LOOK, EASE * (ended - began))
            return self._seen

    def look(self) -> dict[str, Any]:
        """Read what is new, and say how the run stands."""
        status = self._store.status(self._run)
        identity = self._which()
        if identity != self._identity:  # another run has taken the folder's place
            self._identity = identity
            self._forget()
        for name, tail, read in self._files:
            if self._store.file(self._run, name):
                for line in tail.lines():
                    read(line)
        return self.progress.document(status, self._seconds_left())

    def _which(self) -> object:
        """Tells this run from an earlier one in the same folder: files that are written once."""
        for name in (JOB, SCENARIO):
            if found := self._store.file(self._run, name):
                return name, found.stat().st_ino, found.stat().st_mtime_ns
        return None

    def _seconds_left(self) -> float | None:
        """Time that the step still takes, at the speed seen while it was watched."""
        done, total = self.progress.done_of_total()
        now = done, time.monotonic()
        if self._step != self.progress.step or done < self._last[0]:
            self._step, self._first, self._last = self.progress.step, now, now
        elif done > self._last[0]:
            self._last = now
        moved = self._last[0] - self._first[0]
        if not moved or not total:
            return None
        return round((self._last[1] - self._first[1]) / moved * max(0, total - done), 1)
