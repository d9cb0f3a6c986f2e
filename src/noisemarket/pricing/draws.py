"""One private stream of random numbers per pair, the same whoever plays it and wherever.

SplitMix64 turns (seed, key of the owner) into the state of a xoshiro256++ generator. One 64-bit
word per interaction gives the owner's uniform number (upper half) and the curator's (lower half).
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.behaviour import scrambled

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
TO_UNIT = 1.0 / (1 << 32)


def mix(word: int) -> int:
    """SplitMix64's output function: scrambles 64 bits."""
    return int(scrambled(np.array([word], np.uint64))[0])


def _rotate(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & _MASK


class Stream:
    """The stream of one pair: ``next()`` gives both players' uniform numbers in [0, 1)."""

    def __init__(self, seed: int, key: int) -> None:
        start = mix((seed + GOLDEN) & _MASK) ^ mix((key + 2 * GOLDEN) & _MASK)
        self.state = [mix((start + i * GOLDEN) & _MASK) for i in range(1, 5)]

    def next(self) -> tuple[float, float]:
        """Advance by one interaction."""
        s = self.state
        word = (_rotate((s[0] + s[3]) & _MASK, 23) + s[0]) & _MASK
        shifted = (s[1] << 17) & _MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = _rotate(s[3], 45)
        return (word >> 32) * TO_UNIT, (word & 0xFFFFFFFF) * TO_UNIT
