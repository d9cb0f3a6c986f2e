"""What a learning rule is: one player that acts in a state and learns from what it got, with a
private stream of random numbers per pair, the same on every machine and in any order.

The rules of this package are compiled functions (``learning.py``); their classes here hold one
player's tables, for games by messages. A rule of your own is a class that derives from ``Rule``,
in plain Python: it is played by the same game, only slower.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.sides import scrambled
from noisemarket.parts import Parts

if TYPE_CHECKING:
    from noisemarket.pricing.learning import Numbers

GOLDEN = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """SplitMix64's output function: scrambles 64 bits."""
    return int(scrambled(np.array([word], np.uint64))[0])


def seeds(play_seed: int) -> tuple[int, int]:
    """The owners' and the curator's seed of a game by messages, where one seed stands for all."""
    return mix(play_seed ^ GOLDEN), mix((play_seed + 1) % 2**64 ^ GOLDEN)


@cache
def compiled_functions() -> Any:
    """The module ``learning``: Numba is slow to import, and most markets do not learn."""
    return import_module("noisemarket.pricing.learning")


class Stream:
    """The stream of one pair. ``state`` holds its four words."""

    def __init__(self, seed: int, key: int) -> None:
        self._learning, self.state = compiled_functions(), np.empty((1, 4), np.uint64)
        self._learning.seed_stream(self.state, 0, np.uint64(seed), np.uint64(key))

    def for_owner(self) -> float:
        return float(self._learning.upper_uniform(self.state, 0))

    def for_curator(self) -> float:
        return float(self._learning.lower_uniform(self.state, 0))


CLIMBING, EXPLORING, FIXED = 0, 1, 2
"""The families of rules: policy hill-climbers, epsilon-greedy learners, fixed policies."""


PROPOSALS, QUOTES, SAVINGS, PAYMENTS, DEALS = range(5)
"""Columns of ``learning.Batch.counts``."""


@dataclass(frozen=True)
class Settings:
    """The numbers of the learning rules; each rule reads those it needs.

    The policy step at iteration t is ``1 / (step_start + t / step_slowing)`` while winning and
    ``lose_ratio`` times that while losing: psi_w and psi_l of the paper. With ``reopen`` a player
    starts anew when the game has changed, see ``dypp.py``.
    """

    discount: float = 0.8
    learning_rate: float = 0.5
    step_start: float = 50.0
    step_slowing: float = 50.0
    lose_ratio: float = 2.0
    exploration: float = 0.1
    reopen: bool = False


class Rule(ABC):
    """One player of a pair: derive from it for a learning rule of your own.

    States and actions are level numbers. A player is created anew for every pair and side, by
    ``first_values`` and ``settings`` alone; it may use no randomness but the numbers that ``act``
    gets. What changes while it plays should be kept in attributes that are arrays: in a game by
    messages these are saved and restored.

    Attributes:
        reopens: whether it starts anew after a change, where ``learning.reopen`` says so.
        values: Q(state, action).
        settings: the numbers of the scenario's ``[learning]`` table.

    Example:
        >>> import noisemarket as nm
        >>> class Lowest(Rule):
        ...     def act(self, state, uniform):
        ...         return 0
        ...     def learn(self, state, action, reward, next_state, t):
        ...         pass
        ...     def policy(self):
        ...         return np.eye(self.values.shape[1])[np.zeros(len(self.values), int)]
        >>> small = nm.Scenario.from_preset("market", owners=2, iterations=50)
        >>> nm.negotiate(small, mechanism=Lowest).learned.signed_share
        0.0
    """

    reopens = False

    def __init__(self, first_values: FloatArray, settings: Settings) -> None:
        self.values = np.array(first_values, dtype=float)
        self.settings = settings

    @classmethod
    def first_values(cls, hopes: FloatArray, first_value: FloatArray) -> FloatArray:
        """The Q-values to start from, for many players at once.

        ``hopes[player, state, action]`` is a player's own payoff if the other side agreed to
        everything: all that it can know before it has played. A learning rule ignores it and
        starts from one value everywhere (``first_value`` has shape ``(players, 1, 1)``).
        """
        return np.full(hopes.shape, first_value)

    @abstractmethod
    def act(self, state: int, uniform: float) -> int:
        """The level to play after the other side's last one, ``state``; ``uniform``, a random
        number in [0, 1), is the only randomness of this choice."""

    def act_everywhere(self, uniforms: FloatArray) -> IntArray:
        """What ``act`` would choose for every uniform number (a row each) in every state."""
        states = range(len(self.values))
        return np.array([[self.act(state, float(u)) for state in states] for u in uniforms])

    @abstractmethod
    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        """Learn from iteration ``t``: ``action`` in ``state`` brought ``reward``."""

    @abstractmethod
    def policy(self) -> FloatArray:
        """What the player would play now, without exploring: a distribution per state."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        """What changes while the player plays: its attributes that are arrays."""
        return {name: one for name, one in vars(self).items() if isinstance(one, np.ndarray)}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what ``state`` returned."""
        for name, value in state.items():
            setattr(self, name, np.array(value))

    def improve_value(self, state: int, action: int, reward: float, next_state: int) -> None:
        """The Bellman step of the paper's Q-function equation, for rules of your own."""
        target = reward + self.settings.discount * self.values[next_state].max()
        old = self.values[state, action]
        self.values[state, action] = old + self.settings.learning_rate * (target - old)


def draw(policy: FloatArray, uniform: float) -> int:
    """The action that a uniform number in [0, 1) picks from a distribution over actions."""
    greedy = int(np.argmax(policy))
    return int(compiled_functions().draw(policy[None], 0, len(policy), uniform, greedy))


class CompiledRule(Rule):
    """A player whose rule is compiled: ``learning.act`` and ``learning.learn``."""

    family: int
    lose_ratio: float | None = None
    """Instead of the settings' number."""

    def __init__(self, first_values: FloatArray, settings: Settings) -> None:
        super().__init__(first_values, settings)
        states, actions = self.values.shape
        self._policy = np.full((states, actions), 1.0 / actions)
        self.total = np.zeros((states, actions))
        self.best = np.argmax(self.values, axis=1)
        self.visits = np.zeros(states, np.int64)

    @classmethod
    def numbers(cls, settings: Settings) -> Numbers:
        kind: type[Numbers] = compiled_functions().Numbers
        given = {name: float(getattr(settings, name)) for name in kind._fields[1:]}
        if cls.lose_ratio is not None:
            given["lose_ratio"] = cls.lose_ratio
        return kind(cls.family, **given)

    def act(self, state: int, uniform: float) -> int:
        rule, actions = self.numbers(self.settings), self.values.shape[1]
        return int(compiled_functions().act(rule, self._policy, self.best, state, actions, uniform))

    def act_everywhere(self, uniforms: FloatArray) -> IntArray:
        out = np.empty((len(uniforms), len(self.values)), np.int64)
        rule = self.numbers(self.settings)
        compiled_functions().act_everywhere(rule, self._policy, self.best, uniforms, out)
        return out

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        compiled_functions().learn(
            self.numbers(self.settings),
            *(self.values, self._policy, self.total, self.best, self.visits),
            *(state, self.values.shape[1], action, reward, next_state, t),
        )

    def policy(self) -> FloatArray:
        if self.family == CLIMBING:
            return self._policy
        return np.asarray(np.eye(self.values.shape[1])[self.best])


class WolfPHC(CompiledRule):
    """WoLF-PHC, Win or Learn Fast Policy Hill-Climbing: the rule of DyPP."""

    family = CLIMBING
    reopens = True


class PHC(WolfPHC):
    """Hill-climbing with the same step whether it wins or loses."""

    lose_ratio = 1.0


class QLearning(CompiledRule):
    """Plays the action of highest value, and with probability ``exploration`` any action.

    The paper's first benchmark.
    """

    family = EXPLORING


class Greedy(CompiledRule):
    """Assumes that the other side repeats its last move, picks what pays most at once, and never
    learns: the paper's second benchmark."""

    family = FIXED

    @classmethod
    def first_values(cls, hopes: FloatArray, first_value: FloatArray) -> FloatArray:
        return np.array(hopes)


RULES = Parts[type[Rule]](
    "rule", {"wolf_phc": WolfPHC, "phc": PHC, "q_learning": QLearning, "greedy": Greedy}, Rule
)
"""All rules by name; your own by ``package.module:Name``."""


def find_rule(rule: str | type[Rule]) -> type[Rule]:
    """The learning rule of that name; a class is taken as it is."""
    return RULES.find(rule) if isinstance(rule, str) else rule
