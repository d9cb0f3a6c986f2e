"""What one interaction is, both sides' tables combined into games, and how the games ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.game.sides import CuratorSide, OwnerSide

Protocol = Literal["signed", "simultaneous"]


@dataclass(frozen=True)
class Games:
    """One repeated two-player game per owner; every table is ``(owners, J + 1, K + 1)``.

    ``owner_rewards`` and ``curator_rewards`` are what an interaction really pays;
    ``owner_hopes`` and ``curator_hopes`` what each side alone would expect if the other agreed to
    anything: a side may know its hopes, it learns its rewards only by playing. ``agreed`` says
    where both sides sign. ``sees_proposal``: the curator answers the present proposal (``signed``)
    rather than the previous one (``simultaneous``).
    """

    owner_rewards: FloatArray
    curator_rewards: FloatArray
    owner_hopes: FloatArray
    curator_hopes: FloatArray
    agreed: BoolArray
    sees_proposal: bool

    def __len__(self) -> int:
        return len(self.owner_rewards)


def games(owners: OwnerSide, curator: CuratorSide, protocol: Protocol) -> Games:
    """The games that these sides play under this protocol.

    ``simultaneous`` is the paper's: both move at once and every outcome binds. ``signed`` makes
    the contract explicit: the owner proposes a saving, the curator quotes a payment for it, each
    signs if it gains, and without both signatures nothing is traded. Rewards are then counted
    over no trade, a shift by a constant that makes "no deal" worth exactly 0 to both.
    """
    if protocol == "simultaneous":
        hopes, costs = owners.payoffs(), curator.payoffs()
        everywhere = np.ones(hopes.shape, dtype=bool)
        return Games(hopes, costs, hopes, costs, everywhere, sees_proposal=False)
    hopes, costs = owners.gains(), curator.gains()
    agreed = owners.signs() & curator.signs()
    return Games(
        owner_rewards=np.where(agreed, hopes, 0.0),
        curator_rewards=np.where(agreed, costs, 0.0),
        owner_hopes=hopes,
        curator_hopes=costs,
        agreed=agreed,
        sees_proposal=True,
    )


@dataclass(frozen=True)
class Contracts:
    """The array shape of a deal: one saving level and one payment level for every owner.

    ``signed`` says that the owner agreed and something is exchanged: it is False where the sides
    did not agree, and where saving and payment are both level 0. Contracts in force have levels 0
    and 0 without a signature, but for savings that are imposed (``no_dp``).
    """

    saving: IntArray
    payment: IntArray
    signed: BoolArray

    @classmethod
    def of(cls, games: Games, saving: IntArray, payment: IntArray) -> Contracts:
        """The contracts of games in which these levels were proposed and quoted: signed where the
        sides agree and something is traded, else 0 and 0."""
        owners = np.arange(len(games))
        signed = games.agreed[owners, saving, payment] & ((saving > 0) | (payment > 0))
        return cls(np.where(signed, saving, 0), np.where(signed, payment, 0), signed)

    @classmethod
    def same(cls, owners: int, saving: int, payment: int) -> Contracts:
        """The same levels for all owners, signed by none."""
        return cls(
            saving=np.full(owners, saving, np.int64),
            payment=np.full(owners, payment, np.int64),
            signed=np.zeros(owners, dtype=bool),
        )

    @classmethod
    def joined(cls, parts: Sequence[Contracts]) -> Contracts:
        """The contracts of several groups of owners, one group after the other."""
        names = ("saving", "payment", "signed")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.saving)
