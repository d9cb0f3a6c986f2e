"""What an owner sells when it keeps less noise: epsilon, by the account of the job."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.protections.protection import Protection
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon, gaussian_rho


def privacy_sold(
    protection: Protection,
    sigmas: Sequence[float],
    *,
    rounds: int,
    records: int,
    neighbours: str,
    delta: float,
) -> NDArray[np.float64]:
    """The epsilon of the whole job at each noise, over that at the first noise, which is all of it.

    It is counted in units in which half of all noise is worth itself: ``sigmas[0] / 2``. So a loss
    that is linear in it is the same there as one that is linear in the noise given up.

    Args:
        protection: what an owner does to its update.
        sigmas: the noise that is left, all of it first; 0 sells infinitely much.
        rounds: rounds of the job.
        records: how many the owner has. It counts where the account depends on it.
        neighbours: what a record is replaced by.
        delta: of (epsilon, delta).

    Raises:
        BadInput: nothing bounds what a round costs, or no noise costs anything.
    """
    reach = protection.sensitivity(0, records, Neighbours.named(neighbours))

    def epsilon(sigma: float) -> float:
        return gaussian_epsilon(rounds * gaussian_rho(reach, sigma), delta)

    remedy = f"{protection.name} has no epsilon to sell: choose privacy_loss, or a protection."
    if math.isinf(reach):
        raise BadInput("game.payoff", "epsilon_loss", remedy)
    least, half = epsilon(sigmas[0]), epsilon(sigmas[0] / 2.0)
    if not half > least:
        remedy = f"half of the noise costs no epsilon at delta {delta:g}: choose privacy_loss."
        raise BadInput("game.payoff", "epsilon_loss", remedy)
    unit = sigmas[0] / 2.0 / (half - least)
    return np.array([unit * (epsilon(sigma) - least) for sigma in sigmas])
