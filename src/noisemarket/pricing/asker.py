"""The questions that a mechanism may ask owners: the only way to what is private to them.

A mechanism asks through ``RunOptions.asker``. ``ArrayAsker`` answers for all owners of an
environment at once; over a channel each question is a message, and each owner answers for itself.
An owner that does not answer a question has declined: it leaves, bids too much, takes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, IntArray
from noisemarket.game.sides import OwnerSide
from noisemarket.pricing.mechanism import RunOptions
from noisemarket.pricing.messages import (
    GameRules,
    OwnerPlayer,
    ProposalBatch,
    QuoteBatch,
    owner_player,
)
from noisemarket.pricing.rule import seeds


class Asker(ABC):
    """Puts questions to the owners of a job. Savings and payments are level numbers."""

    @abstractmethod
    def stay(self, saving: int, owners: IntArray, payments: IntArray) -> BoolArray:
        """Whether each of these owners (by index) sells a saving for its payment."""

    @abstractmethod
    def bid(self, saving: int) -> IntArray:
        """The lowest payment for which each owner sells a saving; K + 1 where it does not."""

    @abstractmethod
    def choose(self, savings: IntArray, payments: IntArray) -> IntArray:
        """The item of a menu that each owner takes; -1 for none."""

    @abstractmethod
    def play(
        self, rules: GameRules, quotes: Mapping[int, QuoteBatch]
    ) -> Mapping[int, ProposalBatch]:
        """The owners' replies to quotes, by index; an owner without a reply has left the game."""


class ArrayAsker(Asker):
    """Answers by the preferences of an environment's last phase (``play``: of all its phases).

    ``seed`` is that of the play: it names the owners' streams of random numbers.
    """

    def __init__(self, environment: Environment, seed: int = 0) -> None:
        self._environment, self._seed = environment, seed
        self._stays: dict[tuple[int, int], BoolArray] = {}
        self._players: dict[int, OwnerPlayer] = {}

    @cached_property
    def _side(self) -> OwnerSide:
        return self._environment.owner_side()

    def stay(self, saving: int, owners: IntArray, payments: IntArray) -> BoolArray:
        answers = np.zeros(len(owners), dtype=bool)
        for payment in np.unique(payments).tolist():
            if (saving, payment) not in self._stays:
                self._stays[saving, payment] = self._side.accepts(saving, payment)
            these = payments == payment
            answers[these] = self._stays[saving, payment][owners[these]]
        return answers

    def bid(self, saving: int) -> IntArray:
        return np.maximum(self._side.asks(slice(saving, saving + 1))[:, 0], 1)

    def choose(self, savings: IntArray, payments: IntArray) -> IntArray:
        return self._side.choose(savings, payments)

    def play(
        self, rules: GameRules, quotes: Mapping[int, QuoteBatch]
    ) -> Mapping[int, ProposalBatch]:
        return {index: self._player(rules, index).answer(one) for index, one in quotes.items()}

    def _player(self, rules: GameRules, index: int) -> OwnerPlayer:
        if index not in self._players:
            environment, one = self._environment, slice(index, index + 1)
            key, seed = int(environment.population.key[index]), seeds(self._seed)[0]
            sides = [environment.owner_side(phase, one) for phase in rules.phases(environment)]
            self._players[index] = owner_player(rules, sides, seed, key)
        return self._players[index]


def asker_of(environment: Environment, options: RunOptions) -> Asker:
    """The asker of the options, or one that answers for the owners of the environment."""
    return options.asker or ArrayAsker(environment, options.play.seed)
