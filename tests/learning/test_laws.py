"""Laws that hold after every single step, for any numbers that a rule may meet."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noisemarket.game.levels import FloatArray
from noisemarket.learning.draws import GOLDEN, Stream, mix
from noisemarket.learning.lanes import LANES, draw, lane_cumulative, lane_sum
from noisemarket.learning.phc import PHC
from noisemarket.learning.q_learning import QLearning
from noisemarket.learning.rule import Settings
from noisemarket.learning.wolf_phc import WolfPHC, climb

LAST_UNIFORM = 1.0 - 2.0**-32
"""The largest number that a stream gives to a player."""

OVERFULL = np.array([8, 0, 8, 2, 7]) / 25
"""Probabilities, one of them 0, whose sum in our order is the next number above 1."""

sizes = st.integers(2, 41)
steps = st.one_of(
    st.just(0.0), st.floats(0.0, 1.0), st.floats(1.0, 1e308), st.floats(0.0, 1e-12), st.just(np.inf)
)


@st.composite
def distributions(draw_from: st.DrawFn, size: int) -> FloatArray:
    """Any distribution: pure, with holes, lopsided by many orders of magnitude, uniform."""
    weight = st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(1e-300, 1e-3), st.just(1.0))
    weights = np.array(draw_from(st.lists(weight, min_size=size, max_size=size)))
    weights[draw_from(st.integers(0, size - 1))] += 0.5
    return np.asarray(weights / math.fsum(weights))


@st.composite
def rows(draw_from: st.DrawFn) -> FloatArray:
    return draw_from(distributions(draw_from(sizes)))


@st.composite
def positions(draw_from: st.DrawFn) -> tuple[FloatArray, int]:
    """A policy row and its greedy action."""
    row = draw_from(rows())
    return row, draw_from(st.integers(0, len(row) - 1))


def assert_distribution(row: FloatArray) -> None:
    assert row.min() >= 0.0
    assert abs(math.fsum(row) - 1.0) <= 1e-12


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
        player.count[state] = draw_from(st.integers(0, 10**6))
        player.total[state] = player.count[state] * draw_from(distributions(actions))
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
        player.count[:] = 0
        player.total[:] = 0.0
        actions, seen = player.values.shape[1], []
        for t in range(data.draw(st.integers(1, 12))):
            seen.append(player.policy()[0].copy())
            player.learn(0, data.draw(st.integers(0, actions - 1)), 1.0, 0, t)
            np.testing.assert_allclose(player.average[0], np.mean(seen, axis=0), rtol=0, atol=1e-12)
        assert player.count[0] == len(seen)

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
        average = player.average[0] + (policy - player.average[0]) / (player.count[0] + 1)
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
        player = WolfPHC(np.zeros((1, 2)), Settings())
        for t, expected in ((0, 1 / 50), (5_000, 1 / 150)):
            assert player.step(t, winning=True) == pytest.approx(expected)
            assert player.step(t, winning=False) == pytest.approx(2 * expected)
            assert PHC(np.zeros((1, 2)), Settings()).step(t, winning=False) == pytest.approx(
                expected
            )


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


numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50).map(np.array)


class TestLanes:
    @given(numbers)
    def test_a_sum_is_the_sum(self, row: FloatArray) -> None:
        scale = float(np.abs(row).sum())
        assert lane_sum(row) == pytest.approx(math.fsum(row), rel=0, abs=1e-14 * scale)

    @given(numbers)
    def test_running_sums_are_running_sums(self, row: FloatArray) -> None:
        scale = float(np.abs(row).sum())
        assert lane_cumulative(row).shape == row.shape
        np.testing.assert_allclose(lane_cumulative(row), np.cumsum(row), rtol=0, atol=1e-14 * scale)

    @given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=50).map(np.array))
    def test_both_are_exact_where_sums_are(self, row: np.ndarray) -> None:
        assert lane_sum(row.astype(float)) == row.sum()
        np.testing.assert_array_equal(lane_cumulative(row.astype(float)), np.cumsum(row))

    @given(rows())
    def test_running_sums_of_a_distribution_never_fall(self, row: FloatArray) -> None:
        sums = lane_cumulative(row)
        assert (np.diff(sums) >= 0.0).all()
        assert sums[-1] == pytest.approx(1.0, rel=0, abs=1e-14)

    @pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17, 33])
    def test_the_order_of_the_sum_is_fixed(self, size: int) -> None:
        """Lane by lane, then in halves: what a register of eight does. 1 is lost beside 1e16."""
        row = np.ones(size)
        row[0] = 1e16
        lanes = [math.fsum([]) for _ in range(LANES)]
        for i, value in enumerate(row):
            lanes[i % LANES] = lanes[i % LANES] + float(value)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [lanes[i] + lanes[i + half] for i in range(half)]
        assert lane_sum(row) == lanes[0]


class TestDrawing:
    @given(rows(), st.floats(0.0, LAST_UNIFORM))
    @example(np.full(13, 1 / 13), LAST_UNIFORM)
    @example(np.full(33, 1 / 33), LAST_UNIFORM)
    @example(np.array([0.0] * 8 + [1.0]), 0.0)
    @example(np.array([1.0] + [0.0] * 8), LAST_UNIFORM)
    def test_never_an_action_without_probability(self, row: FloatArray, uniform: float) -> None:
        action = draw(row, uniform)
        assert 0 <= action < len(row)
        assert row[action] > 0.0

    @given(rows())
    def test_as_often_as_the_policy_says(self, row: FloatArray) -> None:
        uniforms = (np.arange(500) + 0.5) / 500
        counts = np.bincount([draw(row, uniform) for uniform in uniforms], minlength=len(row))
        assert np.abs(counts / 500 - row).max() <= 1.0001 / 500

    @given(rows(), st.floats(0.0, LAST_UNIFORM))
    def test_is_the_inverse_of_the_running_sum(self, row: FloatArray, uniform: float) -> None:
        exact = int(np.searchsorted(np.cumsum(row), uniform, side="right"))
        near = np.abs(np.cumsum(row) - uniform).min() <= 1e-12
        assert near or draw(row, uniform) == exact

    def test_with_a_real_stream(self) -> None:
        row, stream = np.array([0.5, 0.0, 0.2, 0.3]), Stream(5, 9)
        drawn = [[draw(row, uniform) for uniform in stream.next()] for _ in range(20_000)]
        for side in np.transpose(drawn):
            shares = np.bincount(side, minlength=4) / 20_000
            np.testing.assert_allclose(shares, row, rtol=0, atol=0.015)  # 4 standard deviations
            assert shares[1] == 0.0


def splitmix64(seed: int) -> Iterator[int]:
    """SplitMix64 in NumPy's modular arithmetic (Steele, Lea & Flood 2014), apart from ours."""
    with np.errstate(over="ignore"):
        state = np.array([seed], dtype=np.uint64)
        while True:
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state.copy()
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            yield int((z ^ (z >> np.uint64(31)))[0])


def xoshiro256plusplus(state: list[int]) -> Iterator[int]:
    """Blackman & Vigna's reference, in NumPy's modular arithmetic."""
    s = [np.array([word], dtype=np.uint64) for word in state]

    def rotl(x: np.ndarray, k: int) -> np.ndarray:
        return (x << np.uint64(k)) | (x >> np.uint64(64 - k))

    while True:
        yield int((rotl(s[0] + s[3], 23) + s[0])[0])
        t = s[1] << np.uint64(17)
        s[2] = s[2] ^ s[0]
        s[3] = s[3] ^ s[1]
        s[1] = s[1] ^ s[2]
        s[0] = s[0] ^ s[3]
        s[2] = s[2] ^ t
        s[3] = rotl(s[3], 45)


def words(stream: Stream, count: int) -> list[int]:
    """The 64-bit words behind a stream's pairs of numbers."""
    pairs = [stream.next() for _ in range(count)]
    return [(int(upper * 2**32) << 32) | int(lower * 2**32) for upper, lower in pairs]


keys = st.integers(0, 2**64 - 1)


class TestStreams:
    def test_splitmix64_gives_its_published_numbers(self) -> None:
        published = [6457827717110365317, 3203168211198807973, 9817491932198370423,
                     4593380528125082431, 16408922859458223821]  # fmt: skip
        ours = [mix((1234567 + i * GOLDEN) % 2**64) for i in range(1, 6)]
        independent = splitmix64(1234567)
        assert ours == published == [next(independent) for _ in range(5)]

    def test_xoshiro_gives_its_published_numbers(self) -> None:
        published = [41943041, 58720359, 3588806011781223, 3591011842654386,
                     9228616714210784205, 9973669472204895162, 14011001112246962877,
                     12406186145184390807, 15849039046786891736, 10450023813501588000]  # fmt: skip
        stream = Stream(0, 0)
        stream.state = [1, 2, 3, 4]
        independent = xoshiro256plusplus([1, 2, 3, 4])
        assert words(stream, 10) == published == [next(independent) for _ in range(10)]

    @given(keys, keys)
    def test_a_stream_is_xoshiro_seeded_by_splitmix(self, seed: int, key: int) -> None:
        of_seed, of_key = splitmix64(seed), splitmix64(key)
        next(of_key)
        start = next(of_seed) ^ next(of_key)
        seeded = splitmix64(start)
        independent = xoshiro256plusplus([next(seeded) for _ in range(4)])
        assert words(Stream(seed, key), 20) == [next(independent) for _ in range(20)]

    @given(keys, keys)
    def test_numbers_lie_in_the_unit_interval(self, seed: int, key: int) -> None:
        stream = Stream(seed, key)
        drawn = np.array([stream.next() for _ in range(50)])
        assert drawn.min() >= 0.0
        assert drawn.max() <= LAST_UNIFORM < 1.0

    def test_neighbouring_keys_and_seeds_share_no_stream(self) -> None:
        near_zero, near_strings = range(5_000), range(2**63, 2**63 + 2_000)
        streams = [Stream(1, key) for key in (*near_zero, *near_strings)]
        streams += [Stream(seed, 0) for seed in range(2, 3_002)]
        states = [word for stream in streams for word in stream.state]
        assert len(set(states)) == len(states)  # so no stream is another's, some words further on

    def test_neighbouring_streams_are_unrelated(self) -> None:
        sides = np.array([[Stream(3, key).next() for key in range(4_000)]])[0].T
        for series in (sides[0], sides[1]):
            assert series.mean() == pytest.approx(0.5, abs=0.02)
            shares = np.histogram(series, bins=10, range=(0, 1))[0] / 4_000
            np.testing.assert_allclose(shares, 0.1, atol=0.02)
            assert abs(np.corrcoef(series[:-1], series[1:])[0, 1]) < 0.06
        assert abs(np.corrcoef(sides)[0, 1]) < 0.06

    def test_one_stream_is_uniform_and_its_two_numbers_unrelated(self) -> None:
        stream = Stream(3, 4)
        owner, curator = np.array([stream.next() for _ in range(20_000)]).T
        for series in (owner, curator):
            shares = np.histogram(series, bins=20, range=(0, 1))[0] / 20_000
            np.testing.assert_allclose(shares, 0.05, atol=0.007)
        assert abs(np.corrcoef(owner, curator)[0, 1]) < 0.03
