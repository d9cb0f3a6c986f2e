"""Measured points in a file that only grows: a finished point is on disk and never lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.files import Closing, JsonLines
from noisemarket.study.calibration.grid import Setting

POINTS = "points.jsonl"


@dataclass(frozen=True)
class Point:
    """What a training run came to. ``loss`` is None where it was not finite.

    ``accuracy`` (per cent) and ``loss`` are those of the model that a curator would deploy: the
    average of the global models where one is kept, else the last; ``last_accuracy`` and
    ``last_loss`` are those of the last. ``noise`` and ``share`` are the effective ones, by
    contracts and weights.
    """

    sigma: float
    beta: float
    seed: int
    accuracy: float
    loss: float | None
    last_accuracy: float
    last_loss: float | None
    rounds: int
    refused: int
    seconds: float
    accuracy_per_round: tuple[float, ...] = ()
    sellers: float = 1.0
    noise: float | None = None
    share: float = 1.0

    @property
    def setting(self) -> Setting:
        """What was measured."""
        return Setting(self.sigma, self.beta, self.seed, self.sellers)

    @property
    def effective_noise(self) -> float:
        """The one noise of all owners that would leave their mean as noisy."""
        return self.sigma if self.noise is None else self.noise


class Points(Closing):
    """The points measured so far, by their setting; one process at a time may hold the file.

    All of them were measured alike but for their setting, as the ``fingerprint`` in each line says.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._file = JsonLines(path, "points", "another calibration")
        try:
            points = self._file.read(_parse, "drop that line to measure its point again.")
            if any(alike != fingerprint for alike, _ in points):
                remedy = "holds a point of other settings or data: they cannot mix."
                raise BadInput("points", str(path), remedy)
        except BaseException:
            self._file.close()
            raise
        self._points = {point.setting: point for _, point in points}

    def __contains__(self, setting: Setting) -> bool:
        return setting in self._points

    def __len__(self) -> int:
        return len(self._points)

    def all(self) -> tuple[Point, ...]:
        """The points in the order in which they were measured."""
        return tuple(self._points.values())

    def close(self) -> None:
        """Close the file and let other processes use it."""
        self._file.close()

    def add(self, point: Point) -> None:
        """Keep a point. Once this returns it is on disk."""
        line = asdict(point) | {"fingerprint": self.fingerprint}
        self._file.append(line)
        self._points[point.setting] = point


def _parse(values: dict[str, Any]) -> tuple[str, Point]:
    """The fingerprint and the point in a line."""
    fingerprint = str(values.pop("fingerprint"))
    per_round = tuple(map(float, values.pop("accuracy_per_round")))
    return fingerprint, Point(**values, accuracy_per_round=per_round)
