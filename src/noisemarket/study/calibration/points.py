"""Measured points in a file that only grows: a finished point is on disk and never lost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.files import Closing, GrowingFile
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
        self._file = GrowingFile(path, "points", "another calibration")
        try:
            points, whole = _parse(self._file.read(), path, fingerprint)
            self._file.cut(whole)
        except BaseException:
            self._file.close()
            raise
        self._points = {point.setting: point for point in points}

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
        self._file.append(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._points[point.setting] = point


def _parse(content: bytes, path: Path, fingerprint: str) -> tuple[list[Point], int]:
    """The points, and how many bytes are whole lines: a kill may leave half a line at the end."""
    points, whole = [], 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            values = json.loads(line)
            measured_alike = values.pop("fingerprint")
            per_round = tuple(map(float, values.pop("accuracy_per_round")))
            points.append(Point(**values, accuracy_per_round=per_round))
        except (ValueError, TypeError, KeyError, AttributeError):
            remedy = f"is damaged in line {number}: drop that line to measure its point again."
            raise BadInput("points", str(path), remedy) from None
        if measured_alike != fingerprint:
            remedy = f"holds, in line {number}, a point of other settings or data: they cannot mix."
            raise BadInput("points", str(path), remedy)
        whole += len(line)
    return points, whole
