"""Events as lines of JSON, for a market that runs in another process than who watches it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.federated.checkpoint import read_result
from noisemarket.market import events
from noisemarket.market.events import Event, RoundTrained

EVENTS = "events.jsonl"
FAILED, NEGOTIATING, ENDED = "failed", "negotiating", "ended"
"""Lines beside the events: why the market stopped, how far the game is, what its steps took."""


def to_line(event: Event) -> str:
    """One event, in one line."""
    values = asdict(event)
    if isinstance(event, RoundTrained):
        values["result"] = event.result.to_dict()
    return note(type(event).__name__, **values)


def note(kind: str, **values: Any) -> str:
    """Another line for who watches."""
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
    """The lines that are added to a file from now on, as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0

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
