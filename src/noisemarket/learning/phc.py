"""Plain policy hill-climbing: WoLF-PHC without "win or learn fast", to show what that brings."""

from __future__ import annotations

from noisemarket.learning.wolf_phc import WolfPHC


class PHC(WolfPHC):
    """Climbs with the same step whether it wins or loses."""

    def step(self, t: int, *, winning: bool) -> float:
        return super().step(t, winning=True)
