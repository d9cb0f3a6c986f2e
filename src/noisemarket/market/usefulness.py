"""Do the uploads help? Their projections on what the curator's own records ask for, over rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.reference import Judging
from noisemarket.market.noise_watch import Shapes, gone_on_from
from noisemarket.privacy.noise_shape import UploadFinding
from noisemarket.privacy.usefulness_rule import LEAST_SIGMA, UsefulStanding, standings

LEFT_OUT = 2.0
"""From this ``against`` on, a screened mean leaves an owner out: two deviations."""


class UsefulnessWatch:
    """Adds up how far each owner's uploads go along the directions of the reference records.

    Args:
        sigma: each owner's contracted noise, in the order of rows.
        directions: of the curator's own records.
        rate: how often an owner that is no more against than along is accused, in one round.
        rounds: how many the job has.
        arrays: what was kept before.
    """

    def __init__(
        self,
        sigma: NDArray[np.float64],
        directions: Judging,
        rate: float,
        rounds: int,
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        owners, kinds = len(sigma), len(directions)
        self._sigma, self._directions = np.maximum(sigma, LEAST_SIGMA), directions
        self._limit = -float(ndtri(rate / kinds))
        shapes: Shapes = {
            "along": ((owners, kinds), np.float64),
            "gram": ((owners, kinds, kinds), np.float64),
            "counted": ((owners, rounds), np.bool_),
        }
        self.arrays = gone_on_from(arrays, shapes)

    def check(
        self,
        round_number: int,
        weights: Weights,
        rows: NDArray[np.int64],
        uploads: Mapping[int, Upload],
    ) -> dict[int, UploadFinding]:
        """Add a round's uploads, by row; gives who stands against the reference records by now."""
        precise = self._directions.at(weights).astype(np.float64)
        kept = self.arrays
        for row in rows.tolist():
            kept["along"][row] += precise @ uploads[row].astype(np.float64) / self._sigma[row]
        kept["gram"][rows] += precise @ precise.T
        kept["counted"][rows, round_number - 1] = True
        _, against = self._standings()
        return {
            int(row): UploadFinding(
                "harm",
                "moves the model against the reference records",
                float(against[row]),
                -np.inf,
                self._limit,
                len(self.counted(int(row))),
            )
            for row in rows[against[rows] > self._limit]
        }

    def against(self) -> list[int]:
        """Rows that are more against the reference than along it, beyond two deviations."""
        _, against = self._standings()
        return [int(row) for row in np.flatnonzero(against > LEFT_OUT)]

    def counted(self, row: int) -> list[int]:
        """The rounds whose uploads count for an owner."""
        return [int(one) + 1 for one in np.flatnonzero(self.arrays["counted"][row])]

    def standing(self, row: int) -> UsefulStanding:
        """Where an owner stands."""
        own = slice(row, row + 1)
        best, against = standings(self.arrays["along"][own], self.arrays["gram"][own])
        return UsefulStanding(len(self.counted(row)), float(best[0]), float(against[0]))

    def _standings(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return standings(self.arrays["along"], self.arrays["gram"])
