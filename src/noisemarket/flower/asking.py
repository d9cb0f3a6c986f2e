"""Asking owners until each has answered; who does not is left out of the job."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noisemarket.flower.line import Line
from noisemarket.runfolder import RunFolder

LEFT_OUT = "left-out.json"

_TRIES = 3  # answers that cannot be used, from one owner to one question


class Asking:
    """Questions to the owners of a job, by their index, and who was left out so far.

    Args:
        line: the line to them.
        folder: where the curator keeps who was left out.
    """

    def __init__(self, line: Line, folder: Path) -> None:
        self.line, self._folder = line, folder
        self.left_out: dict[str, str] = {}
        if (folder / LEFT_OUT).exists():
            kept = (folder / LEFT_OUT).read_text(encoding="utf-8")
            self.left_out = dict(json.loads(kept))

    def taking_part(self) -> list[int]:
        """Those who were not left out."""
        return [at for at, name in enumerate(self.line.names) if name not in self.left_out]

    def ask(
        self,
        kind: str,
        asked: Mapping[int, Any],
        take: Callable[[int, Any], bool],
        *,
        leave_out: bool = True,
    ) -> list[int]:
        """Ask owners until each has given an answer that can be used; gives those that have not.

        One that is away is asked again when it is back, for ``wait`` seconds after the others; one
        whose answers cannot be used, three times.
        """
        left, tries = dict(asked), dict.fromkeys(asked, 0)
        why = dict.fromkeys(asked, "away")
        end = math.inf
        while waiting := [index for index in left if tries[index] < _TRIES]:
            self.line.declined.clear()
            here = [index for index in self.line.meet(0.0) if index in waiting]
            replies = self.line.ask(kind, {self.line.names[index]: left[index] for index in here})
            for index in here:
                name = self.line.names[index]
                if name in replies and take(index, replies[name]):
                    del left[index]
                elif name in replies or name in self.line.declined:
                    tries[index] += 1
                    why[index] = self.line.declined.get(name, "unusable answers")
            end = min(end, time.monotonic() + self.line.bounds.wait)
            if not left or time.monotonic() > end:
                break
            time.sleep(0.5)
        if leave_out and left:
            for index in left:
                self.left_out[self.line.names[index]] = (
                    f"{kind.removeprefix('query.')}: {why[index]}"
                )
            RunFolder(self._folder).write_json(LEFT_OUT, self.left_out)
        return sorted(left)
