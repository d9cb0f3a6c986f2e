"""How the games ended, one row per owner: what an exact solver finds and what learners reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.protocol import Games
from noisemarket.game.sides import BoolArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Outcomes:
    """One saving level and one payment level for every owner, and whether they bind.

    ``saving`` and ``payment`` are indices into the levels. ``signed`` says that something is
    really exchanged: it is False where the sides did not agree, and where saving and payment are
    both level 0. Without it the two levels are only an offer and a quote, nothing is traded, and
    both sides have what no trade, level (0, 0), gives them.
    """

    saving: IntArray
    payment: IntArray
    signed: BoolArray

    @classmethod
    def of(cls, games: Games, saving: IntArray, payment: IntArray) -> Outcomes:
        """The outcomes of these levels: signed where the sides agree and something is traded."""
        owners = np.arange(len(games))
        signed = games.agreed[owners, saving, payment] & ((saving > 0) | (payment > 0))
        return cls(saving, payment, signed)
