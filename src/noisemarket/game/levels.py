"""The grids on which the game is played, savings and payments, and how noise turns into quality."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


@dataclass(frozen=True)
class LossSurface:
    """The fitted sigmoid of the paper's loss equation and its quality equation.

    ``loss(sigma, beta) = g1 exp(-g2 d) / (g3 + exp(-g4 sigma)) + g5``, where the degree ``d`` is
    ``beta`` in the paper, and ``quality = zeta_2 - zeta_1 loss``, which reads as test accuracy in
    per cent. It is written in the noise ``sigma`` that is really added, not in the saving, so that
    it does not depend on sigma_max. (The paper's set-up prints the gammas as mu_1..mu_5.)

    With ``labels``, their number, ``d`` is the chance that two records of an owner have different
    labels. That is how beta was found to act: from 0.1 to 1 it changes much, from 1 to 10 little.

    Where contracts differ, ``sigma`` is the effective noise: the one noise of all owners that would
    leave their mean as noisy. A mean that rests on a ``share`` of the owners sees less of the data:
    noise then counts ``1 + k (1 / share - 1)`` times, where ``k`` is the first number of ``spread``
    plus the second over ``labels beta + 1``: owners that differ more are missed more.
    """

    gamma: tuple[float, float, float, float, float]
    zeta: tuple[float, float]
    labels: int = 0
    spread: tuple[float, float] = (0.0, 0.0)

    def loss(self, sigma: ArrayLike, beta: ArrayLike, share: ArrayLike = 1.0) -> FloatArray:
        """Model loss at a noise, a non-IID degree and the share of owners in the mean."""
        g1, g2, g3, g4, g5 = self.gamma
        noise, degree = np.asarray(sigma, dtype=float), evenness(beta, self.labels)
        if any(self.spread):
            always, uneven = self.spread
            missed = always + uneven / (self.labels * np.asarray(beta, dtype=float) + 1.0)
            noise = noise * (1.0 + missed * (1.0 / np.asarray(share, dtype=float) - 1.0))
        with np.errstate(over="ignore"):  # far beyond what was measured: the ratio is then 0
            return np.asarray(g1 * np.exp(-g2 * degree) / (g3 + np.exp(-g4 * noise)) + g5)

    def quality(self, sigma: ArrayLike, beta: ArrayLike, share: ArrayLike = 1.0) -> FloatArray:
        """Model quality, in per cent of test accuracy."""
        zeta_1, zeta_2 = self.zeta
        return np.asarray(zeta_2 - zeta_1 * self.loss(sigma, beta, share))


def evenness(beta: ArrayLike, labels: int = 0) -> FloatArray:
    """The chance that two records of an owner have different labels; else ``beta``."""
    degree = np.asarray(beta, dtype=float)
    return (labels - 1) * degree / (labels * degree + 1) if labels else degree


SURFACES: dict[str, LossSurface] = {
    "printed": LossSurface(gamma=(0.013, 0.0044, 0.0057, 8.18, 0.14), zeta=(35.4278, 102.2444)),
}
"""Loss surfaces by the name that a scenario's ``surface`` field uses."""
