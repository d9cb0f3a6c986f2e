"""What the events of a run say so far, put together for a page."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from noisemarket.errors import BadInput
from noisemarket.federated.rounds import RoundResult, read_result
from noisemarket.ledger.money import MICRO
from noisemarket.market import event_file
from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM
from noisemarket.market.events import (
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
)
from noisemarket.market.summary import deployed
from noisemarket.show.dashboard.run_store import RUNNING
from noisemarket.show.style import name_of

MOST_POINTS = 400
Point = TypeVar("Point")
_NOTES = 50
LABELS = {MARKET: "the market", UNIFORM: "no trade", NO_DP: "no noise"}
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What a line raises that is JSON, perhaps, but not what a market writes."""


class Course:
    """What the events of a run say so far."""

    def __init__(self) -> None:
        self.rounds: dict[int, float] = {}
        self.begin()
        self.baselines: dict[str, dict[int, dict[int, float]]] = {}
        self.baselines_planned = 0

    def begin(self) -> None:
        """The market begins, or is taken up again: it tells all from the start of its steps."""
        self.step = "negotiating"
        self.owners = self.played = self.total = 0
        self.signed = self.paid = self.paid_micro = self.broken = self.left_out = 0
        self.agreed: int | None = None
        self.rounds_planned = 0
        self.notes: list[str] = []
        self.problem: str | None = None
        self.learned: dict[str, list[float]] | None = None

    def take(self, line: str) -> None:
        """One line of the events; a damaged one is passed over."""
        with contextlib.suppress(BadInput, *_DAMAGED):
            self._take(event_file.from_line(line))

    def _take(self, event: Event | dict[str, Any]) -> None:
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
            case Settled() | {"kind": event_file.ENDED}:
                self.step = "settled"
            case {"kind": event_file.BEGUN}:
                self.begin()
            case {"kind": event_file.NEGOTIATING, "done": done, "total": total, **more}:
                self.played, self.total = int(done), int(total)
                if isinstance(trace := more.get("trace"), dict):
                    self.learned = _points(trace)
            case {"kind": event_file.FAILED, "problem": problem}:
                self.problem = str(problem)

    def take_baseline(self, line: str) -> None:
        """A round of what the market is compared with, or how many there will be."""
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
        """A curve for the market, and one for each thing that it is compared with."""
        for name in dict.fromkeys((MARKET, UNIFORM, NO_DP, *self.baselines)):
            own = [self.rounds] if name == MARKET else []
            if found := _series([*own, *self.baselines.get(name, {}).values()]):
                yield {"name": name, "label": LABELS.get(name) or name_of(name), **found}


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
    """The accuracy of a round's model, in per cent.

    Raises:
        ValueError: it is not a number.
    """
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
