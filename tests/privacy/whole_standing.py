"""Where an owner stands, from all its uploads at once: what the sums over rounds must come to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.privacy.usefulness_rule import LEAST_SIGMA, UsefulStanding, standings


def standing_of(uploads: NDArray[Any], directions: NDArray[Any], sigma: float) -> UsefulStanding:
    """``uploads`` has a row for each round, ``directions`` (rounds, directions, weights)."""
    precise = np.asarray(directions, dtype=np.float64)
    scaled = np.asarray(uploads, dtype=np.float64) / max(sigma, LEAST_SIGMA)
    along = np.einsum("rkd,rd->k", precise, scaled)[None]
    gram = np.einsum("rkd,rld->kl", precise, precise)[None]
    best, against = standings(along, gram)
    return UsefulStanding(len(scaled), float(best[0]), float(against[0]))
