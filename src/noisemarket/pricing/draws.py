"""One private stream of random numbers per pair, the same on every machine and in any order.

SplitMix64 turns (seed, key of the owner) into the state of a xoshiro256++ generator. One 64-bit
word per interaction gives the owner's uniform number (upper half) or the curator's (lower half).
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.sides import scrambled

GOLDEN = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """SplitMix64's output function: scrambles 64 bits."""
    return int(scrambled(np.array([word], np.uint64))[0])


def seeds(play_seed: int) -> tuple[int, int]:
    """The owners' and the curator's seed of a game by messages, where one seed stands for all."""
    return mix(play_seed ^ GOLDEN), mix((play_seed + 1) % 2**64 ^ GOLDEN)


class Stream:
    """The stream of one pair. ``state`` holds its four words."""

    def __init__(self, seed: int, key: int) -> None:
        from noisemarket.pricing import learning  # Numba is slow to import

        self._learning, self.state = learning, np.empty((1, 4), np.uint64)
        learning.seed_stream(self.state, 0, np.uint64(seed), np.uint64(key))

    def for_owner(self) -> float:
        """The owner's next number in [0, 1)."""
        return float(self._learning.upper_uniform(self.state, 0))

    def for_curator(self) -> float:
        """The curator's next number in [0, 1)."""
        return float(self._learning.lower_uniform(self.state, 0))
