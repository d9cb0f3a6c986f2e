"""One interface for all mechanisms: an environment in, contracts out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.pricing.rule import Settings

if TYPE_CHECKING:
    from noisemarket.pricing.asker import Asker


TRACE_EVERY, MOST_POINTS = 50, 20_000
"""Iterations per point of a trace, and its points at most: a longer run has fewer per iteration."""


@dataclass(frozen=True)
class PlayConfig:
    """How to play: the rules' numbers, how long, how finely to trace.

    With more than one interaction per message, the game is played as in ``messages``.
    """

    settings: Settings
    iterations: int
    seed: int
    optimism: float = 1.0
    trace_every: int = TRACE_EVERY
    window: int = 500
    compiled: bool = True
    interactions_per_message: int = 1

    @property
    def blocks(self) -> int:
        """Points of the trace."""
        return -(-self.iterations // self.trace_every)


@dataclass(frozen=True)
class Trace:
    """How the play went, a row per block of iterations: means over owners and iterations.

    ``iteration`` is the last iteration of each block. Saving and payment count deals only (none: 0
    and 0); ``proposal`` and ``quote`` are what was said. Payoffs are the learners' rewards.
    """

    iteration: IntArray
    saving: FloatArray
    payment: FloatArray
    proposal: FloatArray
    quote: FloatArray
    signed_share: FloatArray
    owner_reward: FloatArray
    curator_reward: FloatArray


@dataclass(frozen=True)
class Agreement:
    """What a mechanism returns.

    ``done`` marks the owners that were finished (all, unless the run was interrupted). The rest is
    there for mechanisms that learn: the trace, what each side could still gain per interaction
    (``owner_exploitability``, ``curator_exploitability``), and both sides' final policies.
    ``messages`` counts the questions that an owner answers before it signs or not, on average; None
    where nobody asks.
    """

    contracts: Contracts
    done: BoolArray
    trace: Trace | None = None
    owner_exploitability: FloatArray | None = None
    curator_exploitability: FloatArray | None = None
    owner_policies: FloatArray | None = None
    curator_policies: FloatArray | None = None
    messages: float | None = None

    @property
    def complete(self) -> bool:
        return bool(self.done.all())


@dataclass(frozen=True)
class Progress:
    """Owners just finished, and their contracts.

    ``trace`` computes how the play of all owners finished so far went, where a trace is recorded.
    Call it at once: later it may count more owners.
    """

    owners: slice
    contracts: Contracts
    done: int
    total: int
    trace: Callable[[], Trace | None] = field(default=lambda: None, compare=False)


Watch = Callable[[Progress], None]
"""A callback for owners that were just finished."""

Stop = Callable[[], bool]
"""Asked now and then; once it returns True, a run ends and keeps the owners that are finished."""


@dataclass(frozen=True)
class Demand:
    """What a curator of one model wants to buy, for mechanisms that buy from all owners together.

    ``floor`` is the noise that sellers keep, ``target`` the model quality to reach for the least
    money, in per cent. Without a ``budget`` what it is worth to the curator decides. ``scored``:
    owners that add less to the model are offered less.
    """

    floor: float = 0.1
    budget: float | None = None
    target: float | None = None
    scored: bool = False


@dataclass(frozen=True)
class RunOptions:
    """How to run a mechanism: how to learn, how many threads, what to buy.

    ``asker`` puts the questions to the owners; None: they are simulated here, all at once.
    """

    play: PlayConfig
    threads: int = 1
    demand: Demand = Demand()
    watch: Watch = field(default=lambda progress: None)
    stop: Stop = field(default=lambda: False)
    asker: Asker | None = None


class Mechanism(ABC):
    """Turns a population into contracts: derive from it for a mechanism of your own.

    Where all contracts are computed at once, derive from ``Direct`` instead.

    Attributes:
        knows: what the mechanism must know about the owners, in words.
        joint: whether it buys for the one model that all train, rather than owner by owner.
        keeps_target: whether it aims at a demanded quality for the least money.

    Example:
        >>> import noisemarket as nm
        >>> from noisemarket.game.environment import Contracts
        >>> from noisemarket.pricing.mechanism import Direct
        >>> class Half(Direct):
        ...     def contracts(self, environment, options):
        ...         half = environment.levels.saving_levels // 2
        ...         return Contracts.same(len(environment), half, 0)
        >>> round(nm.negotiate(mechanism=Half()).learned.mean_saving, 3)
        0.3
    """

    knows: str = "nothing private"
    joint: bool = False
    keeps_target: bool = False

    @property
    def name(self) -> str:
        """What a mechanism that is not known by name is called in results."""
        return type(self).__name__

    def check(self, environment: Environment, options: RunOptions) -> None:
        """Refuse, before anything is written, an environment that the mechanism cannot serve."""
        if len(environment) == 0:
            raise BadInput("owners", 0, "give at least one owner.")

    @abstractmethod
    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        """Make a contract (perhaps none) for every owner.

        Call ``options.watch`` when owners are finished; once ``options.stop`` returns True, return
        with the owners finished so far. Ask owners through ``options.asker``.
        """


class Direct(Mechanism):
    """A mechanism that does not play: all contracts at once.

    ``questions`` is how many each owner answers, such as one bid; None where nobody is asked.
    """

    questions: int | None = None

    @abstractmethod
    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        """The contracts in force."""

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        contracts, owners = self.contracts(environment, options), len(environment)
        self._check_levels(contracts, environment)
        options.watch(Progress(slice(0, owners), contracts, owners, owners))
        return Agreement(contracts, np.ones(owners, dtype=bool), messages=self.questions)

    def _check_levels(self, contracts: Contracts, environment: Environment) -> None:
        """Refuse contracts that are not one level in range for every owner."""
        levels, owners = environment.levels, len(environment)
        most = {"saving": levels.saving_levels, "payment": levels.payment_levels, "signed": 1}
        for name, last in most.items():
            values = np.asarray(getattr(contracts, name, None))
            if values.shape != (owners,) or values.dtype.kind not in "biu":
                what = f"one {'truth value' if name == 'signed' else 'level number'} for each"
                remedy = f"contracts() must return Contracts whose {name} has {what} of "
                raise BadInput("mechanism", self.name, f"{remedy}{owners} owners.")
            wrong = values[(values < 0) | (values > last)]
            if len(wrong):
                remedy = f"contracts() returned {name} level {wrong[0]}: the last one is {last}."
                raise BadInput("mechanism", self.name, remedy)


MICRO = 1_000_000
_ROUNDING = 1e-4  # micro-units by which a float may miss the amount that it is printed as


def micro_up(amount: float) -> int:
    """An amount in micro-units, rounded up: never less than the ledger would book."""
    return max(int(amount > 0.0), math.ceil(amount * MICRO - _ROUNDING))


def micro_down(amount: float) -> int:
    """An amount in micro-units, rounded down: never more than the ledger would allow."""
    return math.floor(amount * MICRO + _ROUNDING)


def affordable(budget: float | None, price: float, owners: int) -> int:
    """How many of these owners a budget pays at one price; all of them without a budget."""
    if budget is None or price == 0.0:
        return owners
    return min(owners, micro_down(budget) // micro_up(price))
