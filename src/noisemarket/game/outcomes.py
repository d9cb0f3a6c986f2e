"""How the games ended, one row per owner: what an exact solver finds and what learners reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.levels import FloatArray
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

    def __len__(self) -> int:
        return len(self.saving)

    def owner_rewards(self, games: Games) -> FloatArray:
        """What each owner gets out of its game."""
        return self._entries(games.owner_rewards)

    def curator_rewards(self, games: Games) -> FloatArray:
        """What the curator gets out of each owner's game."""
        return self._entries(games.curator_rewards)

    def _entries(self, table: FloatArray) -> FloatArray:
        owners = np.arange(len(self))
        saving = np.where(self.signed, self.saving, 0)
        payment = np.where(self.signed, self.payment, 0)
        return np.asarray(table[owners, saving, payment])
