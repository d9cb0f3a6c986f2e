"""Events and the progress of a negotiation as lines of JSON, to watch from another process."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.rounds import read_result
from noisemarket.files import Closing, not_written
from noisemarket.market import events
from noisemarket.market.events import Event, RoundTrained
from noisemarket.pricing.mechanism import Progress, Trace, Watch

if TYPE_CHECKING:
    from noisemarket.market.outcome import MarketOutcome, Steps

EVENTS = "events.jsonl"
BEGUN, FAILED, NEGOTIATING, ENDED = "begun", "failed", "negotiating", "ended"
"""Lines beside the events: the market begins or goes on, why it stopped, how far the game is, what
its steps took."""

MOST_POINTS = 100
"""Points of a trace in a line at most."""

TRACE_SECONDS, TRACE_NOTES = 0.5, 50
"""How soon after one trace the next is written, at least; and how many in a time that doubles."""


def writing(write: Callable[[str], None], watch: Watch) -> Watch:
    """The same callback, with every progress written down as well.

    Where the mechanism keeps a trace, some points of it are in the lines: of all owners finished so
    far, every half second, and ever more rarely if the negotiation takes long.
    """
    began = time.monotonic()
    due = began

    def both(seen: Progress) -> None:
        nonlocal due
        values: dict[str, Any] = {"kind": NEGOTIATING, "done": seen.done, "total": seen.total}
        if (now := time.monotonic()) >= due or seen.done == seen.total:
            due = now + max(TRACE_SECONDS, (now - began) / TRACE_NOTES)
            if (trace := seen.trace()) is not None:
                values["trace"] = points(trace)
        write(json.dumps(values) + "\n")
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


def to_line(event: Event) -> str:
    """One event, in one line."""
    values = asdict(event)
    if isinstance(event, RoundTrained):
        values["result"] = event.result.to_dict()
    return note(type(event).__name__, **values)


def note(kind: str, **values: Any) -> str:
    """A line that is not an event."""
    return json.dumps({"kind": kind, **values}, default=str) + "\n"


def from_line(line: str) -> Event | dict[str, Any]:
    """What ``to_line`` or ``note`` was given."""
    try:
        values = json.loads(line)
        kind = getattr(events, str(values["kind"]), None)
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            return dict(values)
        del values["kind"]
        if kind is RoundTrained:
            values["result"] = read_result(values["result"])
        return kind(**values)
    except (ValueError, TypeError, KeyError):
        raise BadInput("event", line[:60], "is not an event of a market.") from None


class Tail:
    """The lines that are added to a file, from now on or from its beginning, as they come."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() and not whole else 0

    def lines(self) -> Iterator[str]:
        """The whole lines that are new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        yield from whole.decode(errors="replace").splitlines()


def _ends_a_line(path: Path) -> bool:
    """Whether a file is empty or ends with a whole line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() in (b"", b"\n")


class EventFile(Closing):
    """Writes down what happens in a market, as it happens; what a run before wrote stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            whole = not path.exists() or _ends_a_line(path)
            self._file = path.open("a", encoding="utf-8", newline="\n", buffering=1)
        except OSError as problem:
            raise not_written(path, problem) from None
        self.write(note(BEGUN) if whole else "\n" + note(BEGUN))

    def write(self, line: str) -> None:
        """Add a line."""
        try:
            self._file.write(line)
        except OSError as problem:
            raise not_written(self._path, problem) from None

    def watching(self, watch: Watch) -> Watch:
        """The same callback, with the progress of the negotiation written down as well."""
        return writing(self.write, watch)

    def following(self, steps: Steps) -> Steps:
        """The same steps; each is written down before it is passed on."""
        try:
            while True:
                try:
                    event = next(steps)
                except StopIteration as end:
                    outcome: MarketOutcome = end.value
                    self.write(note(ENDED, seconds=dict(outcome.seconds)))
                    return outcome
                self.write(to_line(event))
                yield event
        except NoisemarketError as problem:
            with contextlib.suppress(NoisemarketError):
                self.write(note(FAILED, problem=str(problem), again=problem.again))
            raise
        finally:
            steps.close()

    def close(self) -> None:
        """Close the file. What could not be written was told when it was."""
        with contextlib.suppress(OSError):
            self._file.close()
