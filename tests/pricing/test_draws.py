"""Drawing from a policy, and the streams of random numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.pricing.policies import (
    LAST_UNIFORM,
    rows,
)

from noisemarket.game.levels import FloatArray
from noisemarket.pricing import learning
from noisemarket.pricing.rule import GOLDEN, Stream, draw, mix

pytestmark = pytest.mark.slow


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
        drawn = [[draw(row, uniform) for uniform in both(stream)] for _ in range(20_000)]
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
    return [int(learning.next_word(stream.state, 0)) for _ in range(count)]


def both(stream: Stream) -> tuple[float, float]:
    """The owner's number and the curator's of one word."""
    state = stream.state.copy()
    upper = stream.for_owner()
    stream.state = state
    return upper, stream.for_curator()


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
        stream.state = np.array([[1, 2, 3, 4]], np.uint64)
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

    def test_the_owner_gets_the_upper_half_and_the_curator_the_lower(self) -> None:
        stream = Stream(3, 4)
        state = stream.state.copy()
        upper, lower = both(stream)
        stream.state = state
        assert words(stream, 1) == [(int(upper * 2**32) << 32) | int(lower * 2**32)]

    @given(keys, keys)
    def test_numbers_lie_in_the_unit_interval(self, seed: int, key: int) -> None:
        stream = Stream(seed, key)
        drawn = np.array([both(stream) for _ in range(50)])
        assert drawn.min() >= 0.0
        assert drawn.max() <= LAST_UNIFORM < 1.0

    def test_neighbouring_keys_and_seeds_share_no_stream(self) -> None:
        near_zero, near_strings = range(5_000), range(2**63, 2**63 + 2_000)
        streams = [Stream(1, key) for key in (*near_zero, *near_strings)]
        streams += [Stream(seed, 0) for seed in range(2, 3_002)]
        states = [word for stream in streams for word in stream.state.ravel().tolist()]
        assert len(set(states)) == len(states)  # so no stream is another's, some words further on

    def test_neighbouring_streams_are_unrelated(self) -> None:
        sides = np.array([[both(Stream(3, key)) for key in range(4_000)]])[0].T
        for series in (sides[0], sides[1]):
            assert series.mean() == pytest.approx(0.5, abs=0.02)
            shares = np.histogram(series, bins=10, range=(0, 1))[0] / 4_000
            np.testing.assert_allclose(shares, 0.1, atol=0.02)
            assert abs(np.corrcoef(series[:-1], series[1:])[0, 1]) < 0.06
        assert abs(np.corrcoef(sides)[0, 1]) < 0.06

    def test_one_stream_is_uniform_and_its_two_numbers_unrelated(self) -> None:
        stream = Stream(3, 4)
        owner, curator = np.array([both(stream) for _ in range(20_000)]).T
        for series in (owner, curator):
            shares = np.histogram(series, bins=20, range=(0, 1))[0] / 20_000
            np.testing.assert_allclose(shares, 0.05, atol=0.007)
        assert abs(np.corrcoef(owner, curator)[0, 1]) < 0.03
