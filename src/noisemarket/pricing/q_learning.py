"""Epsilon-greedy Q-learning, the paper's first benchmark."""

from __future__ import annotations

import numpy as np

from noisemarket.game.levels import FloatArray
from noisemarket.pricing.rule import Rule


class QLearning(Rule):
    """Plays the action of highest value, and with probability ``exploration`` any action."""

    def act(self, state: int, uniform: float) -> int:
        actions, exploration = self.values.shape[1], self.settings.exploration
        if uniform < exploration:
            return int(min(uniform / exploration * actions, actions - 1))
        return int(np.argmax(self.values[state]))

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        self.improve_value(state, action, reward, next_state)

    def policy(self) -> FloatArray:
        return np.asarray(np.eye(self.values.shape[1])[self.values.argmax(axis=1)])
