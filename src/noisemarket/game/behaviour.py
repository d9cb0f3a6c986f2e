"""How owners answer: exactly by what pays for them, with errors, or only now and then.

An error is drawn once for each owner and question, by the owner's key and the seed: the same
question gets the same answer, wherever it is asked and however often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray

_ERROR, _SILENCE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class Behaviour:
    """How far owners are from answering exactly by what pays for them.

    An owner misjudges what a contract leaves it by a logistic error of scale ``temperature``: it
    accepts with probability ``1 / (1 + exp(-x / t))`` what leaves it ``x`` over its limit. It
    answers the share ``answer_rate`` of the questions; silence accepts nothing.
    """

    temperature: float = 0.0
    answer_rate: float = 1.0
    seed: int = 0

    @property
    def exact(self) -> bool:
        return self.temperature == 0.0 and self.answer_rate == 1.0

    def errors(self, keys: KeyArray, questions: IntArray) -> FloatArray:
        """By how much each owner misjudges each question: a row per owner."""
        draw = np.clip(self._uniform(keys, questions, _ERROR), 1e-16, 1.0 - 1e-16)
        return np.asarray(self.temperature * (np.log(draw) - np.log1p(-draw)))

    def answers(self, keys: KeyArray, questions: IntArray) -> BoolArray:
        """Whether each owner answers each question: a row per owner."""
        return np.asarray(self._uniform(keys, questions, _SILENCE) < self.answer_rate)

    def _uniform(self, keys: KeyArray, questions: IntArray, salt: np.uint64) -> FloatArray:
        owners = scrambled(keys ^ scrambled(np.array([self.seed], np.uint64) ^ salt))
        asked = scrambled(questions.astype(np.uint64) + np.uint64(1))
        words = scrambled(owners[:, None] ^ asked[None, :])
        return np.asarray(words >> np.uint64(11), dtype=float) / 2.0**53


EXACT = Behaviour()
"""Owners that answer every question exactly by what pays for them."""


def scrambled(words: KeyArray) -> KeyArray:
    """SplitMix64's output function: a random number for every owner, by its key alone."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
