"""What happens in a market, as it happens: one stream that everything else reads.

It is also written to a file, a line of JSON for each event, to watch from another process.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.files import Closing, JsonLines
from noisemarket.formats import Infinite
from noisemarket.pricing.mechanism import Progress, Trace, Watch

if TYPE_CHECKING:
    from noisemarket.market.outcome import MarketOutcome, Steps


@dataclass(frozen=True)
class Event:
    """Something that happened in a job. What was recorded is in the ledger before it is told."""


@dataclass(frozen=True)
class Opened(Event):
    """The job is on the ledger. ``resumed`` says that it had been begun before."""

    job: str
    owners: int
    rounds: int
    budget: int | None
    resumed: bool


@dataclass(frozen=True)
class Negotiated(Event):
    """Every pair has played. ``agreed`` deals are within the budget, ``over_budget`` are not."""

    owners: int
    agreed: int
    over_budget: int
    total: int
    seconds: float


@dataclass(frozen=True)
class Signed(Event):
    """A contract carries both signatures. Amounts are in micro-units, epsilon is at its delta."""

    owner: str
    contract: str
    saving: float
    sigma: float
    payment: int
    epsilon: Infinite
    delta: float


@dataclass(frozen=True)
class LeftOut(Event):
    """An owner was away, declined or gave unusable answers before it signed: it takes no part."""

    owner: str
    reason: str


@dataclass(frozen=True)
class RoundTrained(Event):
    """A round is over, delivered uploads are recorded. ``result`` counts rounds from 1."""

    result: RoundResult
    rounds: int


@dataclass(frozen=True)
class Accused(Event):
    """An upload was not what the contract says: refused, and the contract will not be paid."""

    owner: str
    round: int
    reason: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Verified(Event):
    """The curator's finding about a whole contract."""

    owner: str
    contract: str
    kept: bool
    delivered: int
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Paid(Event):
    """A contract was kept and is paid, for the last and only time."""

    owner: str
    contract: str
    amount: int


@dataclass(frozen=True)
class Broken(Event):
    """A contract was broken and is not paid."""

    owner: str
    contract: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Settled(Event):
    """The job is closed. ``head`` pins the ledger as it now is: note it elsewhere."""

    job: str
    total: int
    paid: int
    broken: int
    head: str


_EVENTS = {one.__name__: TypeAdapter[Any](one) for one in Event.__subclasses__()}

EVENTS = "events.jsonl"
BEGUN, FAILED, NEGOTIATING, ENDED = "begun", "failed", "negotiating", "ended"
"""Lines beside the events: the market begins or goes on, why it stopped, how far the game is, what
its steps took."""

MOST_POINTS = 100
"""Points of a trace in a line at most."""

TRACE_SECONDS, TRACE_NOTES = 0.5, 50
"""How soon after one trace the next is written, at least; and how many in a time that doubles."""


def writing(write: Callable[[dict[str, Any]], object], watch: Watch) -> Watch:
    """The same callback, with progress and some points of the trace written down as well."""
    began = time.monotonic()
    due = began

    def both(seen: Progress) -> None:
        nonlocal due
        values: dict[str, Any] = {"kind": NEGOTIATING, "done": seen.done, "total": seen.total}
        if (now := time.monotonic()) >= due or seen.done == seen.total:
            due = now + max(TRACE_SECONDS, (now - began) / TRACE_NOTES)
            if (trace := seen.trace()) is not None:
                values["trace"] = points(trace)
        write(values)
        watch(seen)

    return both


def points(trace: Trace) -> dict[str, list[float]]:
    """Some points of a trace, from its first to its last: means of saving and payment."""
    last = len(trace.iteration) - 1
    some = np.unique(np.linspace(0, last, MOST_POINTS).round().astype(int))
    return {
        "iteration": trace.iteration[some].tolist(),
        "saving": trace.saving[some].round(6).tolist(),
        "payment": trace.payment[some].round(6).tolist(),
    }


def from_line(line: str) -> Event | dict[str, Any]:
    """The event of a line, or what else ``EventFile.write`` was given."""
    try:
        values = dict(json.loads(line))
        if values["kind"] not in _EVENTS:
            return values
        event: Event = _EVENTS[values.pop("kind")].validate_python(values)
        return event
    except (ValueError, TypeError, KeyError):
        raise BadInput("event", line[:60], "is not an event of a market.") from None


class Tail:
    """The lines that are added to a file, from now on or from its beginning, as they come."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() and not whole else 0

    def lines(self) -> Iterator[str]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        yield from whole.decode(errors="replace").splitlines()


class EventFile(Closing):
    """Writes down what happens in a market, as it happens; what a run before wrote stays."""

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path, "events", "another run", durable=False)
        self.write(BEGUN)

    def write(self, kind: str, **values: Any) -> None:
        self._file.append({"kind": kind, **values})

    def watching(self, watch: Watch) -> Watch:
        return writing(self._file.append, watch)

    def following(self, steps: Steps) -> Steps:
        """The same steps; each is written down before it is passed on."""
        try:
            while True:
                try:
                    event = next(steps)
                except StopIteration as end:
                    outcome: MarketOutcome = end.value
                    self.write(ENDED, seconds=dict(outcome.seconds))
                    return outcome
                kind = type(event).__name__
                self.write(kind, **_EVENTS[kind].dump_python(event, mode="json"))
                yield event
        except NoisemarketError as problem:
            with contextlib.suppress(NoisemarketError):
                self.write(FAILED, problem=str(problem), again=problem.again)
            raise
        finally:
            steps.close()

    def close(self) -> None:
        self._file.close()
