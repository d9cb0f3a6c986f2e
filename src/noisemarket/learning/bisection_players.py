"""The two players of a bisection by messages: one interaction a message, each on its own machine.

The curator sends what it would quote for every offer; the owner makes one, and says whether it
signs. The negotiation is over when a deal stands, after some 20 messages at most.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.levels import BoolArray, IntArray
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.learning.bisection_curator import curator_beliefs, hear_answer, quote, stands
from noisemarket.learning.bisection_owner import (
    BEST,
    Wants,
    hear_quote,
    make_offer,
    owner_beliefs,
    wants_of,
)
from noisemarket.learning.messages import CuratorPlayer, OwnerPlayer, State


class BisectionOwner(OwnerPlayer):
    """The player of the only owner of a side."""

    def __init__(self, side: OwnerSide, window: int) -> None:
        super().__init__(side.levels.shape, window)
        every = wants_of(side)
        self._wants = Wants(every.reserves[0], every.gains[0])
        self._beliefs = owner_beliefs(self._shape[0])

    def deal(self) -> tuple[int, int]:
        return self.deals.last()

    def _move(self, quotes: IntArray, signs: BoolArray) -> tuple[int, int, bool]:
        offer = make_offer(self._beliefs, self._wants)
        quoted = int(quotes[offer])
        both = bool(signs[offer]) and quoted >= int(self._wants.reserves[offer])
        hear_quote(self._beliefs, self._wants, offer, quoted, both)
        return offer, quoted, both

    def _memory(self) -> State:
        return {name: value.copy() for name, value in self._beliefs._asdict().items()}

    def _remember(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        for name, value in self._beliefs._asdict().items():
            value[:] = state[name]
        self._beliefs.notes[BEST] = -1  # the owner may want something else by now


class BisectionCurator(CuratorPlayer):
    """The curator's player against the only owner of a side."""

    def __init__(self, side: CuratorSide, window: int) -> None:
        super().__init__(side.levels.shape, window)
        self._limits = side.limits()[0]
        self._beliefs = curator_beliefs(self._shape[0])

    def deal(self) -> tuple[int, int]:
        return self.deals.last()

    def _draw(self, interactions: int) -> tuple[IntArray, BoolArray]:
        offers = range(self._shape[0])
        row = np.array([quote(self._beliefs, self._limits, offer) for offer in offers])
        quotes = np.tile(row, (interactions, 1))
        return quotes, quotes <= self._limits

    def _hear(self, offer: int, quote: int, signed: bool) -> None:
        if quote <= self._limits[offer]:
            hear_answer(self._beliefs, offer, quote, signed)
        self.settled = signed and stands(self._beliefs, offer, quote)
