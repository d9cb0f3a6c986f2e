"""Learning where the answer is known: matching pennies, rock-paper-scissors, prisoner's dilemma.

WoLF-PHC comes to rest at the mixed equilibrium; plain hill-climbing circles it ever more widely;
Q-learning plays pure policies and so never is there. Distances below are the largest error of any
probability of either player, averaged over the last quarter of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from noisemarket.game.levels import FloatArray
from noisemarket.pricing.rule import RULES, Rule, Settings, Stream

pytestmark = pytest.mark.compiled

ITERATIONS, EVERY = 20_000, 20
SEEDS = (1, 2)
STEPS = Settings(discount=0.0, learning_rate=0.1, step_start=4_000.0, step_slowing=10.0)


class Stateless(Rule):
    """A rule that does not know what was played last: always in the same, only state."""

    def __init__(
        self, rule: str, settings: Settings, start: list[float], first_value: float = 0.0
    ) -> None:
        super().__init__(np.full((1, len(start)), first_value), settings)
        self.inner = RULES[rule](self.values, settings)
        if rule in ("wolf_phc", "phc"):
            self.inner.policy()[0] = start
        self.seen: list[FloatArray] = [self.inner.policy()[0].copy()]

    def act(self, state: int, uniform: float) -> int:
        return self.inner.act(0, uniform)

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        self.inner.learn(0, action, reward, 0, t)
        if t % EVERY == 0:
            self.seen.append(self.inner.policy()[0].copy())

    def policy(self) -> FloatArray:
        return self.inner.policy()


@dataclass(frozen=True)
class ZeroSum:
    """A game, its only equilibrium, and where the players start."""

    payoff: list[list[float]]
    equilibrium: tuple[list[float], list[float]]
    start: tuple[list[float], list[float]]


THIRDS = [1 / 3, 1 / 3, 1 / 3]
GAMES = {
    "matching pennies": ZeroSum(
        [[1, -1], [-1, 1]], ([0.5, 0.5], [0.5, 0.5]), ([0.7, 0.3], [0.5, 0.5])
    ),
    "lopsided pennies": ZeroSum(
        [[2, -1], [-1, 1]], ([0.4, 0.6], [0.4, 0.6]), ([0.5, 0.5], [0.5, 0.5])
    ),
    "rock-paper-scissors": ZeroSum(
        [[0, -1, 1], [1, 0, -1], [-1, 1, 0]], (THIRDS, THIRDS), ([0.5, 0.25, 0.25], THIRDS)
    ),
}


def play(
    players: list[Stateless], rows: FloatArray, columns: FloatArray, seed: int, iterations: int
) -> list[FloatArray]:
    """Both players' policies over time."""
    first, second = players
    uniforms, more = Stream(seed, key=0), Stream(seed, key=0)
    for t in range(iterations):
        row, column = first.act(0, uniforms.for_owner()), second.act(0, more.for_curator())
        first.learn(0, row, float(rows[row, column]), 0, t)
        second.learn(0, column, float(columns[row, column]), 0, t)
    return [np.array(player.seen) for player in players]


@cache
def distances(rule: str, game: str, seed: int) -> FloatArray:
    """How far both players are from the equilibrium, over time."""
    given = GAMES[game]
    payoff = np.array(given.payoff, dtype=float)
    players = [Stateless(rule, STEPS, start) for start in given.start]
    policies = play(players, payoff, -payoff, seed, ITERATIONS)
    errors = [
        np.abs(policy - target).max(axis=1)
        for policy, target in zip(policies, given.equilibrium, strict=True)
    ]
    return np.maximum(*errors)


def late(series: FloatArray) -> float:
    return float(series[-len(series) // 4 :].mean())


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize("game", GAMES)
class TestZeroSumGames:
    def test_wolf_phc_comes_to_the_mixed_equilibrium(self, game: str, seed: int) -> None:
        # Measured over seeds 1 to 3: 0.02 to 0.07 at last, a third or less of the largest error
        # of the first quarter (0.13 to 0.23).
        away = distances("wolf_phc", game, seed)
        assert late(away) < 0.08
        assert late(away) < 0.5 * away[: len(away) // 4].max()

    def test_plain_hill_climbing_keeps_circling(self, game: str, seed: int) -> None:
        # Measured over seeds 1 to 3: 0.26 to 0.62 at last, 9 to 14 times the error of WoLF-PHC.
        away = distances("phc", game, seed)
        assert late(away) > 0.15
        assert late(away) > 4 * late(distances("wolf_phc", game, seed))
        assert late(away) > away[: len(away) // 10].mean(), "it should not come closer, either"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("game", GAMES)
def test_q_learning_is_never_at_a_mixed_equilibrium(game: str, seed: int) -> None:
    # A pure policy is at least 0.4 away from these mixes; and it does not even stay with one.
    given = GAMES[game]
    payoff = np.array(given.payoff, dtype=float)
    players = [Stateless("q_learning", STEPS, start) for start in given.start]
    policies = play(players, payoff, -payoff, seed, 5_000)
    for policy, target in zip(policies, given.equilibrium, strict=True):
        assert (policy.max(axis=1) == 1.0).all()
        assert np.abs(policy - target).max(axis=1).min() >= 1.0 - max(target) - 1e-12
        late_ones = policy[len(policy) // 2 :]
        assert (late_ones != late_ones[0]).any(), "the policy should keep changing"


DILEMMA = np.array([[3.0, 0.0], [5.0, 1.0]])
"""The row player's payoffs; action 1 is to defect."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rule", ["wolf_phc", "phc", "q_learning"])
def test_everybody_defects_in_the_prisoners_dilemma(rule: str, seed: int) -> None:
    settings = Settings(discount=0.0, learning_rate=0.2, step_start=500.0, step_slowing=100.0)
    # They start out kind. Without exploration they need optimism, or they never learn better.
    players = [Stateless(rule, settings, [0.7, 0.3], first_value=5.0) for _ in range(2)]
    for policy in play(players, DILEMMA, DILEMMA.T, seed, 3_000):
        np.testing.assert_array_equal(policy[-1], [0.0, 1.0])
        assert (policy[-len(policy) // 4 :, 1] == 1.0).all(), "and stay with it"


def test_the_climbers_start_where_they_are_put() -> None:
    player = Stateless("wolf_phc", STEPS, [0.7, 0.3])
    np.testing.assert_array_equal(player.policy(), [[0.7, 0.3]])
