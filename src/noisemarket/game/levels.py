"""The two grids on which the game is played: noise savings and payments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
KeyArray = NDArray[np.uint64]

MOST_CELLS = 2_000_000
"""Most pairs of a saving and a payment that a game may have, so that it fits into memory."""


@dataclass(frozen=True)
class Levels:
    """J + 1 savings from 0 to sigma_max and K + 1 payments from 0 to payment_max.

    The paper prints the grids as k/(K p_max) and j/(J sigma_max); read k p_max / K and
    j sigma_max / J, or prices would end at 1/16 and savings would exceed all the noise.
    """

    sigma_max: float = 0.6
    saving_levels: int = 12
    payment_max: float = 16.0
    payment_levels: int = 32

    @cached_property
    def savings(self) -> FloatArray:
        """The noise an owner may give up, lowest first: j sigma_max / J for j = 0..J."""
        return np.arange(self.saving_levels + 1) * self.sigma_max / self.saving_levels

    @cached_property
    def payments(self) -> FloatArray:
        """What the curator may pay, lowest first: k p_max / K for k = 0..K."""
        return np.arange(self.payment_levels + 1) * self.payment_max / self.payment_levels

    @cached_property
    def sigmas(self) -> FloatArray:
        """The noise that is left after each saving; exactly none after the last one."""
        return np.append(np.maximum(self.sigma_max - self.savings[:-1], 0.0), 0.0)

    def sigma_left(self, level: int) -> float:
        return float(self.sigmas[level])

    @property
    def shape(self) -> tuple[int, int]:
        """Number of savings and number of payments: the shape of every payoff table."""
        return self.saving_levels + 1, self.payment_levels + 1
