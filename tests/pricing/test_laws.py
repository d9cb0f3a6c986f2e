"""Laws that hold after every single step, for any numbers that a rule may meet."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.pricing.policies import (
    LAST_UNIFORM,
    OVERFULL,
    assert_distribution,
    distributions,
    positions,
    rows,
    sizes,
    steps,
)

from noisemarket.game.levels import FloatArray
from noisemarket.pricing import learning
from noisemarket.pricing.rule import PHC, QLearning, Settings, WolfPHC

pytestmark = pytest.mark.compiled


def climb(row: FloatArray, best: int, step: float) -> None:
    learning.climb(row[None], 0, len(row), best, step)


class TestClimbing:
    @given(positions(), steps)
    def test_takes_from_each_other_what_it_has_and_gives_it_to_the_best(
        self, position: tuple[FloatArray, int], step: float
    ) -> None:
        row, best = position
        taken = np.minimum(row, step / (len(row) - 1))
        taken[best] = 0.0
        expected = row - taken
        expected[best] += math.fsum(taken)
        climbed = row.copy()
        climb(climbed, best, step)
        np.testing.assert_allclose(climbed, expected, rtol=0, atol=1e-15)

    @given(positions(), steps)
    @example((OVERFULL, 1), 0.0)
    @example((OVERFULL, 1), 1e-17)
    def test_leaves_a_distribution_with_more_on_the_best_action(
        self, position: tuple[FloatArray, int], step: float
    ) -> None:
        row, best = position
        climbed = row.copy()
        climb(climbed, best, step)
        assert_distribution(climbed)
        assert climbed[best] >= row[best] - 1e-15
        others = np.delete(climbed, best)
        assert (others <= np.delete(row, best)).all()

    @given(rows(), st.lists(st.tuples(st.integers(0, 40), steps), max_size=60))
    def test_for_any_sequence_of_steps(
        self, row: FloatArray, moves: list[tuple[int, float]]
    ) -> None:
        for best, step in moves:
            before = row.copy()
            climb(row, best % len(row), step)
            assert_distribution(row)
            assert row[best % len(row)] >= before[best % len(row)] - 1e-15

    @given(positions())
    def test_a_full_step_makes_the_row_pure(self, position: tuple[FloatArray, int]) -> None:
        row, best = position
        climb(row, best, float(len(row)))
        assert row[best] == 1.0
        assert np.count_nonzero(row) == 1

    @given(sizes, st.floats(1e-9, 1e9))
    def test_the_greedy_action_wins_in_the_end(self, size: int, step: float) -> None:
        row = np.full(size, 1.0 / size)
        needed = math.ceil((size - 1) / size / step) + 2
        for _ in range(min(needed, 200)):
            climb(row, size - 1, step)
        assert row[-1] == (1.0 if needed <= 200 else pytest.approx(1 / size + 200 * step, abs=1e-9))


@st.composite
def players(draw_from: st.DrawFn) -> WolfPHC:
    """A climber in the middle of its life: any values, policies, averages and counts."""
    kind = draw_from(st.sampled_from([WolfPHC, PHC]))
    states, actions = draw_from(st.integers(1, 3)), draw_from(sizes)
    start, slowing = (draw_from(st.floats(1e-300, 1e12)) for _ in range(2))
    settings = Settings(
        discount=draw_from(st.floats(0.0, 0.999)),
        learning_rate=draw_from(st.floats(1e-6, 1.0)),
        step_start=start,
        step_slowing=slowing,
        lose_ratio=draw_from(st.floats(1.0, 1e6)),
    )
    value = st.one_of(st.floats(-1e9, 1e9), st.sampled_from([0.0, 1.0, -1.0]))
    values = draw_from(st.lists(value, min_size=states * actions, max_size=states * actions))
    player = kind(np.reshape(values, (states, actions)), settings)
    for state in range(states):
        player.policy()[state] = draw_from(distributions(actions))
        player.visits[state] = draw_from(st.integers(0, 10**6))
        player.total[state] = player.visits[state] * draw_from(distributions(actions))
    return player


class TestLearning:
    @given(players(), st.data())
    def test_every_step_keeps_the_policy_a_distribution(
        self, player: WolfPHC, data: st.DataObject
    ) -> None:
        states, actions = player.values.shape
        for _ in range(3):
            state, after = (data.draw(st.integers(0, states - 1)) for _ in range(2))
            action, t = data.draw(st.integers(0, actions - 1)), data.draw(st.integers(0, 10**9))
            before = player.policy().copy()
            player.learn(state, action, data.draw(st.floats(-1e9, 1e9)), after, t)
            best = int(np.argmax(player.values[state]))
            assert_distribution(player.policy()[state])
            assert player.policy()[state, best] >= before[state, best] - 1e-15
            others = [row for row in range(states) if row != state]
            np.testing.assert_array_equal(player.policy()[others], before[others])

    @given(players(), st.data())
    def test_the_average_policy_is_the_mean_of_the_policies_visited(
        self, player: WolfPHC, data: st.DataObject
    ) -> None:
        player.visits[:] = 0
        player.total[:] = 0.0
        actions, seen = player.values.shape[1], []
        for t in range(data.draw(st.integers(1, 12))):
            seen.append(player.policy()[0].copy())
            player.learn(0, data.draw(st.integers(0, actions - 1)), 1.0, 0, t)
            average = player.total[0] / player.visits[0]
            np.testing.assert_allclose(average, np.mean(seen, axis=0), rtol=0, atol=1e-12)
        assert player.visits[0] == len(seen)

    @given(players(), st.data())
    def test_the_value_moves_to_its_target_by_the_learning_rate(
        self, player: WolfPHC, data: st.DataObject
    ) -> None:
        states, actions = player.values.shape
        state, after = (data.draw(st.integers(0, states - 1)) for _ in range(2))
        action, reward = data.draw(st.integers(0, actions - 1)), data.draw(st.floats(-1e6, 1e6))
        before, rate = player.values.copy(), player.settings.learning_rate
        target = reward + player.settings.discount * before[after].max()
        player.learn(state, action, reward, after, 0)
        expected = before.copy()
        expected[state, action] = (1 - rate) * before[state, action] + rate * target
        np.testing.assert_allclose(player.values, expected, rtol=1e-9, atol=1e-6)

    @given(players(), st.data())
    def test_the_step_is_large_exactly_when_losing(
        self, player: WolfPHC, data: st.DataObject
    ) -> None:
        """The textbook: winning is earning more than the average policy would, by one's values."""
        actions = player.values.shape[1]
        policy = player.policy()[0].copy()
        average = (player.total[0] + policy) / (player.visits[0] + 1)
        action = data.draw(st.integers(0, actions - 1))
        player.learn(0, action, 0.0, 0, 7)
        q = player.values[0]
        gain = math.fsum(policy * q) - math.fsum(average * q)
        if abs(gain) <= 1e-9 * np.abs(q).max():
            return  # too close to call
        win = 1.0 / (player.settings.step_start + 7 / player.settings.step_slowing)
        ratio = 1.0 if isinstance(player, PHC) else player.settings.lose_ratio
        expected = policy.copy()
        climb(expected, int(np.argmax(q)), win if gain > 0 else ratio * win)
        np.testing.assert_allclose(player.policy()[0], expected, rtol=0, atol=1e-12)

    def test_equal_values_count_as_losing(self) -> None:
        player = WolfPHC(np.zeros((1, 4)), Settings(lose_ratio=3.0, step_start=100.0))
        player.learn(0, 2, 0.0, 0, 0)
        np.testing.assert_allclose(player.policy()[0], [0.28, 0.24, 0.24, 0.24])

    def test_the_papers_steps(self) -> None:
        for kind, ratio in ((WolfPHC, 2.0), (PHC, 1.0)):
            for t, step in ((0, 1 / 50), (5_000, 1 / 150)):
                player = kind(np.zeros((1, 2)), Settings())
                player.learn(0, 1, 0.0, 0, t)  # equal values: losing
                assert player.policy()[0, 0] == pytest.approx(0.5 + ratio * step)


class TestExploring:
    @given(sizes, st.floats(0.0, LAST_UNIFORM), st.floats(0.0, 1.0), st.data())
    def test_acts_within_range_and_greedily_but_for_its_share(
        self, actions: int, uniform: float, exploration: float, data: st.DataObject
    ) -> None:
        values = np.array(data.draw(st.lists(st.floats(-9, 9), min_size=actions, max_size=actions)))
        player = QLearning(values[None], Settings(exploration=exploration))
        action = player.act(0, uniform)
        assert 0 <= action < actions
        if uniform >= exploration:
            assert action == int(np.argmax(values))

    def test_explores_every_action_equally(self) -> None:
        player = QLearning(np.array([[0.0, 0.0, 9.0, 0.0, 0.0]]), Settings(exploration=0.25))
        uniforms = (np.arange(8_000) + 0.5) / 8_000
        counts = np.bincount([player.act(0, uniform) for uniform in uniforms], minlength=5)
        np.testing.assert_array_equal(counts, [400, 400, 6_400, 400, 400])
