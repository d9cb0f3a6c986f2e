"""How long each step of a market took."""

from __future__ import annotations

import time


class LapClock:
    """What each step took, in seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.monotonic()

    def so_far(self) -> float:
        """Seconds since the last step ended."""
        return time.monotonic() - self._since

    def lap(self, step: str) -> None:
        """A step ends here."""
        self.laps[step] = self.so_far()
        self._since = time.monotonic()
