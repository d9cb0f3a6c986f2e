"""Exact answers of the games, one outcome an owner: the Nash equilibrium of the one-shot game, the
equilibrium of the signed protocol by backward induction, and the curator's best contract.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.environment import Contracts, Games
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.game.sides import CuratorSide, OwnerSide

TOLERANCE = 1e-9
"""Payoffs closer than this part of the largest of the same owner's game count as equal: on a grid,
ties are common and rounding blurs them."""


def equilibrium(games: Games) -> Contracts:
    """The equilibrium of the protocol that these games are played under."""
    return signed_equilibrium(games) if games.sees_proposal else stage_equilibrium(games)


def stage_equilibrium(games: Games) -> Contracts:
    """The Nash equilibrium of every one-shot game, both sides moving at once.

    There is one in pure strategies: payoffs add over saving and payment, so what is best for a side
    does not depend on the other. Of several the one with the largest sum of both payoffs is taken
    (ties: the lowest levels).
    """
    owner, curator = games.owner_rewards, games.curator_rewards
    cells = mutual_best_replies(owner, curator)
    return Contracts.of(games, *_best_cell(owner + curator, cells))


def signed_equilibrium(games: Games) -> Contracts:
    """The equilibrium of every signed game, by backward induction.

    To each proposal the curator answers with the cheapest quote that both sides sign; where there
    is none the proposal comes to nothing, worth 0. The owner foresees this and makes the proposal
    that is best for it (ties: the lowest saving).
    """
    return CheapestDeals.in_tables(games).best_for_owner()


@dataclass(frozen=True)
class CheapestDeals:
    """For every saving the least payment that both sides sign, and what it is worth to each.

    Where they sign none (``signed`` is False) all of it is 0. The answers to a signed game lie
    among these deals: a curator quotes no more than it must.
    """

    payment: IntArray
    signed: BoolArray
    owner: FloatArray
    curator: FloatArray

    @classmethod
    def in_tables(cls, games: Games) -> CheapestDeals:
        payment, signed = games.agreed.argmax(axis=2), np.asarray(games.agreed.any(axis=2))
        rewards = [
            np.take_along_axis(table, payment[:, :, None], axis=2)[:, :, 0]
            for table in (games.owner_rewards, games.curator_rewards)
        ]
        return cls(payment, signed, *(np.where(signed, one, 0.0) for one in rewards))

    @classmethod
    def between(cls, owners: OwnerSide, curator: CuratorSide) -> CheapestDeals:
        """The same by both sides' limits, without tables, for owners that answer without error."""
        least = owners.reserves()
        signed = least <= curator.limits()
        payment = np.where(signed, least, 0)
        gains = curator.worth() - curator.price()[payment]
        return cls(
            payment,
            signed,
            np.where(signed, owners.gains_at(payment), 0.0),
            np.where(signed, gains, 0.0),
        )

    def best_for_owner(self) -> Contracts:
        return self._at(_first_highest(self.owner))

    def best_for_curator(self) -> Contracts:
        return self._at(_first_highest(self.curator))

    def _at(self, saving: IntArray) -> Contracts:
        rows = np.arange(len(saving))
        signed, payment = self.signed[rows, saving], self.payment[rows, saving]
        saving = np.where(signed, saving, 0)
        traded = signed & (saving + payment > 0)
        return Contracts(saving, np.where(traded, payment, 0), traded)


def first_best(games: Games) -> Contracts:
    """The contract best for the curator if it knew everything: its upper bound, owner by owner.

    It may choose any outcome that the owner accepts: one that both sign or, in the simultaneous
    protocol, where nobody signs, one that leaves the owner no worse off than without a trade.
    """
    if games.sees_proposal:
        return CheapestDeals.in_tables(games).best_for_curator()
    owner = games.owner_rewards
    accepted = owner >= owner[:, :1, :1] - _near(owner)
    return Contracts.of(games, *_best_cell(games.curator_rewards, accepted))


def mutual_best_replies(owner: FloatArray, curator: FloatArray) -> BoolArray:
    """The pure equilibria: the cells of every game where neither side gains by moving alone."""
    owner_content = owner >= owner.max(axis=1, keepdims=True) - _near(owner)
    curator_content = curator >= curator.max(axis=2, keepdims=True) - _near(curator)
    return np.asarray(owner_content & curator_content)


def _best_cell(values: FloatArray, allowed: BoolArray) -> tuple[IntArray, IntArray]:
    """Of every game's allowed cells the one of highest value (ties: the lowest levels)."""
    count, savings, payments = values.shape
    flat = np.where(allowed, values, -np.inf).reshape(count, savings * payments)
    saving, payment = np.divmod(_first_highest(flat), payments)
    return saving, payment


def _first_highest(values: FloatArray) -> IntArray:
    """The first index along the last axis that holds its maximum, rounding aside."""
    highest = values.max(axis=-1, keepdims=True)
    return np.asarray((values >= highest - _near(values)).argmax(axis=-1))


def _near(values: FloatArray) -> FloatArray:
    """How close two payoffs of a game may be to count as equal, one game a row.

    Each game by itself: one owner with enormous payoffs must not blur the answers of the others.
    """
    games = tuple(range(min(1, values.ndim - 1), values.ndim))
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    return np.asarray(TOLERANCE * sizes.max(axis=games, keepdims=True, initial=0.0))
