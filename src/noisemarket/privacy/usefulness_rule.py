"""When an owner's uploads count as useful: a rule with error rates that a contract can state.

Of an upload y and a direction r of the reference records, <y, r> / sigma is Gaussian with deviation
||r||, whatever the owner knows: r was fixed before the noise was drawn. Summed over rounds,

    z_r = sum <y, r> / sigma / sqrt(sum ||r||^2)

has deviation 1, and the mean 0 if the owner learned nothing. There is a z for each of the K
directions; ``best`` is the largest, and there is one z_b with it.

- **Trained:** best >= threshold. An owner without signal reaches that at most at the rate
  K (1 - Phi(threshold)). An owner that moves ``length`` a round along some direction, on the root
  mean square, has a mean of length sqrt(n) / sigma there, and misses the threshold at half the
  rate ``missed``.
- **Not against:** for some direction b, no direction w is farther against than b is along, as far
  as noise can tell: (-z_w - z_b) / sqrt(2 + 2 rho_wb) stays below the quantile of missed / 2K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput

FULL_ROUNDS = 30
"""Later rounds have little left to learn: they are not asked for more signal."""

LEAST_SIGMA = 1e-3
"""Uploads with less noise are judged as if they had this much."""


@dataclass(frozen=True)
class UsefulStanding:
    """Where an owner stands: rounds that count, the best z, and how far it is against.

    ``against`` is a z, too: large if every direction has one that is farther against.
    """

    rounds: int
    best: float
    against: float


@dataclass(frozen=True)
class UsefulnessRule:
    """What an owner has to reach to be paid, and how often this errs.

    Args:
        length: what a useful owner moves a round along the reference, at least, as a share of
            ``reach``.
        missed: the chance that such an owner is not found useful.
        directions: how many directions the reference has.
        reach: the greatest length of an update, or of one step where there are several; 1 where
            nothing bounds it.
    """

    length: float
    missed: float
    directions: int
    reach: float = 1.0

    def threshold(self, sigma: float, rounds: int) -> float:
        """The best z that is asked for.

        Example:
            >>> round(UsefulnessRule(0.12, 1e-3, 11).threshold(sigma=0.1, rounds=30), 2)
            3.28
        """
        from scipy.special import ndtri  # slow to import, and most messages to an owner need none

        moved = self.length * self.reach * math.sqrt(min(rounds, FULL_ROUNDS))
        signal = moved / max(sigma, LEAST_SIGMA)
        return signal + float(ndtri(self.missed / 2.0))

    def most_against(self) -> float:
        """The largest ``UsefulStanding.against`` of an owner that is paid."""
        from scipy.special import ndtri  # slow to import, and most messages to an owner need none

        return -float(ndtri(self.missed / 2.0 / self.directions))

    def idle_paid(self, sigma: float, rounds: int) -> float:
        """The chance that an owner that learns nothing is found useful, at most."""
        from scipy.special import ndtr  # slow to import, and most messages to an owner need none

        return min(1.0, self.directions * float(ndtr(-self.threshold(sigma, rounds))))

    def met(self, standing: UsefulStanding, sigma: float, rounds: int) -> bool:
        """Whether an owner with this standing is useful under a contract of so many rounds.

        The threshold is that of all rounds, whoever stayed away from some: with fewer rounds it
        would be lower, and who sends mere noise could pass it by sending little.
        """
        enough = standing.best >= self.threshold(sigma, rounds)
        return enough and standing.against <= self.most_against()

    def terms(self) -> dict[str, Any]:
        """As a job states it, to all owners alike."""
        return {name: value for name, value in asdict(self).items() if name != "reach"}

    def stated(self, sigma: float, rounds: int) -> dict[str, Any]:
        """As a contract states it, with what it comes to for its noise and all its rounds."""
        figures = {
            "threshold": self.threshold(sigma, rounds),
            "most_against": self.most_against(),
            "idle_paid": self.idle_paid(sigma, rounds),
        }
        return asdict(self) | {name: float(f"{value:.6g}") for name, value in figures.items()}

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> UsefulnessRule:
        try:
            rule = cls(
                float(stated["length"]),
                float(stated["missed"]),
                int(stated["directions"]),
                float(stated.get("reach", 1.0)),
            )
        except (KeyError, TypeError, ValueError):
            rule = cls(0.0, 0.0, 0)
        if not (rule.length > 0.0 < rule.reach and 0.0 < rule.missed < 1.0 <= rule.directions):
            remedy = "give length, missed (between 0 and 1) and directions, all above 0."
            raise BadInput("usefulness", dict(stated), remedy)
        return rule


def standings(
    along: NDArray[np.float64], gram: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``best`` and ``against`` of each owner, from sums over its rounds; 0 for one without a round.

    ``along`` is the sum of <y, r> / sigma, (owners, directions), and ``gram`` that of <r, r'>.
    """
    lengths = np.sqrt(np.einsum("nkk->nk", gram))
    safe = np.where(lengths > 0.0, lengths, 1.0)
    z = along / safe
    rho = gram / (safe[:, :, None] * safe[:, None, :])
    spread = np.sqrt(np.maximum(2.0 + 2.0 * rho, 1e-6))
    farther = (-z[:, :, None] - z[:, None, :]) / spread
    return z.max(axis=1), farther.max(axis=1).min(axis=1)
