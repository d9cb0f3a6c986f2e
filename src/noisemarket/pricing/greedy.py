"""Greedy play, the paper's second benchmark: best for the moment, and never learns."""

from __future__ import annotations

import numpy as np

from noisemarket.game.levels import FloatArray
from noisemarket.pricing.rule import Rule


class Greedy(Rule):
    """Assumes that the other side repeats its last move, and picks what pays most at once."""

    @classmethod
    def first_values(cls, hopes: FloatArray, first_value: FloatArray) -> FloatArray:
        return np.array(hopes)

    def act(self, state: int, uniform: float) -> int:
        return int(np.argmax(self.values[state]))

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        """Nothing: the immediate payoff is known from the start."""

    def policy(self) -> FloatArray:
        return np.asarray(np.eye(self.values.shape[1])[self.values.argmax(axis=1)])
