"""One interface for all mechanisms: an environment in, contracts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray
from noisemarket.game.protocol import Outcomes
from noisemarket.pricing.batch import PlayConfig

if TYPE_CHECKING:
    from noisemarket.pricing.asker import Asker


@dataclass(frozen=True)
class Contracts:
    """What is in force for each owner: level numbers of its saving and its payment.

    Where nothing was agreed both are 0. ``signed`` says that the owner agreed to a trade; savings
    without it were imposed (``no_dp``).
    """

    saving: IntArray
    payment: IntArray
    signed: BoolArray

    @classmethod
    def of(cls, outcomes: Outcomes) -> Contracts:
        """The contracts that a game's outcomes amount to."""
        signed = outcomes.signed
        return cls(
            np.where(signed, outcomes.saving, 0), np.where(signed, outcomes.payment, 0), signed
        )

    @classmethod
    def joined(cls, parts: Sequence[Contracts]) -> Contracts:
        """The contracts of several groups of owners, one group after the other."""
        names = ("saving", "payment", "signed")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.saving)


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
        """Whether every owner was finished."""
        return bool(self.done.all())


@dataclass(frozen=True)
class Progress:
    """Owners just finished and their contracts, for who watches a run.

    ``trace`` computes how the play of all owners finished so far went, where one is kept. It is for
    who is told of this progress, and at that time: later it may count more owners.
    """

    owners: slice
    contracts: Contracts
    done: int
    total: int
    trace: Callable[[], Trace | None] = field(default=lambda: None, compare=False)


Watch = Callable[[Progress], None]
"""Is told of owners that were just finished."""

Stop = Callable[[], bool]
"""Is asked now and then; from when it returns True on, a run ends with what it has finished."""


@dataclass(frozen=True)
class Demand:
    """What a curator of one model wants to buy, for mechanisms that buy from all owners together.

    Args:
        floor: the noise that sellers keep.
        budget: the most that is paid in all; None: what it is worth to the curator decides.
        target: the model quality to reach for the least money, in per cent; None: no target.
        scored: whether owners who add less to the model are offered less.
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
        >>> class Half(Direct):
        ...     def contracts(self, environment, options):
        ...         half = environment.levels.saving_levels // 2
        ...         return same_for_all(len(environment), half, 0)
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
        """Refuse, before anything is written, an environment that the mechanism cannot serve.

        Args:
            environment: the game.
            options: how it would be run.

        Raises:
            BadInput: says what to change.
        """
        if len(environment) == 0:
            raise BadInput("owners", 0, "give at least one owner.")

    @abstractmethod
    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        """Make a contract (perhaps none) for every owner.

        Args:
            environment: the game.
            options: how to run. Call ``options.watch`` when owners are finished; once
                ``options.stop`` returns True, return with the owners finished so far.

        Returns:
            The contracts, and which owners are finished.
        """

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray | None:
        """The most that each owner could gain by answering otherwise than it does.

        The others answer as they do. What is gained is payoff over the owner's limit
        (``OwnerSide.surplus``).

        Args:
            environment: the game.
            options: how the mechanism was run.
            agreement: what came of it.

        Returns:
            One number an owner, NaN for owners that were not examined; None where it is not known.
            By default what the owner's best answer to the curator's policy would bring per
            interaction, of mechanisms that learn.
        """
        return agreement.owner_exploitability


class Direct(Mechanism):
    """A mechanism that does not play: all contracts at once.

    ``questions`` is how many each owner answers, such as one bid; None where nobody is asked.
    """

    questions: int | None = None

    @abstractmethod
    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        """The contracts in force."""

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        contracts = self.contracts(environment, options)
        owners = len(environment)
        options.watch(Progress(slice(0, owners), contracts, owners, owners))
        return Agreement(contracts, np.ones(owners, dtype=bool), messages=self.questions)


def same_for_all(owners: int, saving: int, payment: int) -> Contracts:
    """The same levels for all owners, signed by none."""
    return Contracts(
        saving=np.full(owners, saving, np.int64),
        payment=np.full(owners, payment, np.int64),
        signed=np.zeros(owners, dtype=bool),
    )
