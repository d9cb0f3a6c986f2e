"""What one interaction is: both sides' tables combined into games."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from noisemarket.game.levels import FloatArray
from noisemarket.game.sides import BoolArray, CuratorSide, OwnerSide

Protocol = Literal["signed", "simultaneous"]


@dataclass(frozen=True)
class Games:
    """One repeated two-player game per owner; every table is ``(owners, J + 1, K + 1)``.

    ``owner_rewards`` and ``curator_rewards`` are what an interaction really pays;
    ``owner_hopes`` and ``curator_hopes`` what each side alone would expect if the other agreed to
    anything: a side may know its hopes, it learns its rewards only by playing. ``agreed`` says
    where both sides sign. ``sees_offer``: the curator answers the present offer (``signed``)
    rather than the previous one (``simultaneous``).
    """

    owner_rewards: FloatArray
    curator_rewards: FloatArray
    owner_hopes: FloatArray
    curator_hopes: FloatArray
    agreed: BoolArray
    sees_offer: bool

    def __len__(self) -> int:
        return len(self.owner_rewards)


def games(owners: OwnerSide, curator: CuratorSide, protocol: Protocol) -> Games:
    """The games that these sides play under this protocol.

    ``simultaneous`` is the paper's: both move at once and every outcome binds. ``signed`` makes
    the contract explicit: the owner offers a saving, the curator quotes a payment for it, each
    signs if it gains, and without both signatures nothing is traded. Rewards are then counted
    over no trade, a shift by a constant that makes "no deal" worth exactly 0 to both.
    """
    if protocol == "simultaneous":
        hopes, costs = owners.payoffs(), curator.payoffs()
        everywhere = np.ones(hopes.shape, dtype=bool)
        return Games(hopes, costs, hopes, costs, everywhere, sees_offer=False)
    hopes, costs = owners.gains(), curator.gains()
    agreed = owners.signs() & curator.signs()
    return Games(
        owner_rewards=np.where(agreed, hopes, 0.0),
        curator_rewards=np.where(agreed, costs, 0.0),
        owner_hopes=hopes,
        curator_hopes=costs,
        agreed=agreed,
        sees_offer=True,
    )
