"""WoLF-PHC, Win or Learn Fast Policy Hill-Climbing: the rule of DyPP. And plain hill-climbing."""

from __future__ import annotations

import numpy as np

from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.pricing.lanes import draw, lane_cumulative, lane_sum
from noisemarket.pricing.rule import Rule, Settings


class WolfPHC(Rule):
    """Climbs towards the greedy action, slowly while winning and fast while losing.

    The paper's policy step adds psi to the greedy action and takes psi/(actions - 1) from each
    other, which makes probabilities negative. The original algorithm (Bowling & Veloso 2002) takes
    from each action no more than it has, and so do we. The average policy is updated before the
    win test, and the row that changes is the row of the state visited. As in the paper,
    nothing explores but the mixed policy itself.
    """

    def __init__(self, first_values: FloatArray, settings: Settings) -> None:
        super().__init__(first_values, settings)
        states, actions = self.values.shape
        self._policy = np.full((states, actions), 1.0 / actions)
        self.total = np.zeros((states, actions))
        self.count = np.zeros(states, dtype=np.int64)

    def act(self, state: int, uniform: float) -> int:
        return draw(self._policy[state], uniform)

    def act_everywhere(self, uniforms: FloatArray) -> IntArray:
        sums = np.array([lane_cumulative(row) for row in self._policy])
        return np.asarray(np.count_nonzero(sums[None] <= uniforms[:, None, None], axis=2))

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        self.improve_value(state, action, reward, next_state)
        self.count[state] += 1
        self.total[state] += self._policy[state]
        best = int(np.argmax(self.values[state]))
        climb(self._policy[state], best, self.step(t, winning=self._gain(state, best) > 0.0))

    def _gain(self, state: int, best: int) -> float:
        """By how much the policy earns more than the average policy (total / count), times count.

        The shift by the best value changes nothing but rounding, as both policies sum to 1, and
        makes exact ties exact.
        """
        ahead = self.count[state] * self._policy[state] - self.total[state]
        return lane_sum(ahead * (self.values[state] - self.values[state, best]))

    def step(self, t: int, *, winning: bool) -> float:
        """psi_w or psi_l at iteration t."""
        s = self.settings
        win_step = 1.0 / (s.step_start + t / s.step_slowing)
        return win_step if winning else s.lose_ratio * win_step

    def policy(self) -> FloatArray:
        return self._policy


class PHC(WolfPHC):
    """Climbs with the same step whether it wins or loses."""

    def step(self, t: int, *, winning: bool) -> float:
        return super().step(t, winning=True)


def climb(policy: FloatArray, best: int, step: float) -> None:
    """Move ``step`` of probability to the best action, from each other at most what it has."""
    others = np.maximum(policy - step / (len(policy) - 1), 0.0)
    others[best] = 0.0
    policy[:] = others
    policy[best] = max(1.0 - lane_sum(others), 0.0)
