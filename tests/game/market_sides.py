"""Both sides of small markets, with the paper's constants as defaults."""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Contracts, Protocol
from noisemarket.game.levels import SURFACES, FloatArray, Levels
from noisemarket.game.sides import CuratorSide, OwnerSide, Payoff

LEVELS = Levels()
PRINTED = SURFACES["printed"]
PROTOCOLS: list[Protocol] = ["signed", "simultaneous"]
PAYOFFS: list[Payoff] = ["privacy_loss", "printed"]


def owner_side(
    costs: list[float] | FloatArray,
    markup: float = 0.2,
    payoff: Payoff = "privacy_loss",
    levels: Levels = LEVELS,
    payment_value: float = 0.08,
    privacy_weight: float = 2.5,
) -> OwnerSide:
    cost = np.asarray(costs, dtype=float)
    markups = np.full(len(cost), markup)
    return OwnerSide(levels, payoff, payment_value, privacy_weight, cost, markups)


def curator_side(
    betas: list[float] | FloatArray,
    levels: Levels = LEVELS,
    weights: tuple[float, float, float] = (0.6, 0.2, 0.13),
) -> CuratorSide:
    return CuratorSide(levels, PRINTED, *weights, np.asarray(betas, dtype=float))


def rewards(outcomes: Contracts, table: FloatArray) -> FloatArray:
    """What a side gets out of each game by its table of rewards: of no trade where unsigned."""
    rows = np.arange(len(table))
    return np.where(outcomes.signed, table[rows, outcomes.saving, outcomes.payment], table[:, 0, 0])
