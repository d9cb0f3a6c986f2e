"""The outcome of a settled job: one file, ``outcome.json``, that everything else reads."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.files import write_json
from noisemarket.formats import Infinite
from noisemarket.game.environment import Contracts
from noisemarket.market.events import Event
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.orders import Order
from noisemarket.privacy.accountant import PrivacyStatement

OUTCOME = "outcome.json"
PAID, BROKEN, LEFT_OUT = "paid", "broken", "left out"


@dataclass(frozen=True)
class OwnerOutcome:
    """One owner's row. Levels are numbers on the grids of the game; money is in micro-units.

    ``weight`` is the owner's part of the mean update; ``paid_micro`` is None unless the ``state``
    is ``paid``; ``reason`` says why it is not, or what kept the owner from selling more; ``rho``
    and ``epsilon`` (at ``delta``) were spent, and are infinite where nothing is guaranteed.
    ``loss_lowered`` is by how much its uploads lowered the test loss, to first order, with a
    standard error.
    """

    owner: str
    records: int
    saving_level: int
    payment_level: int
    saving: float
    sigma: float
    payment_micro: int
    weight: float
    rho: Infinite
    epsilon: Infinite
    delta: float
    releases: int
    paid_micro: int | None
    state: str
    reason: str
    loss_lowered: float
    loss_lowered_error: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of a settled job, as ``outcome.json`` has it.

    ``agreed`` counts the trades that the budget pays, ``over_budget`` those that it does not.
    ``head`` pins the ledger as it is at the end, ``simulated_owners`` have records that were dealt
    out to them, and ``seconds`` are those of each step.

    Example:
        ::

            outcome = nm.Outcome.load("runs/mine")
            print(outcome.results[-1].score.accuracy, outcome.payments)
    """

    job: str
    preset: str
    mechanism: str
    seed: int
    weighting: str
    sigma_max: float
    owners: tuple[OwnerOutcome, ...]
    agreed: int
    over_budget: int
    effective_noise: float
    effective_share: float
    neighbours: str
    guaranteed: bool
    secure_noise: bool
    results: tuple[RoundResult, ...]
    head: str
    currency: str
    simulated_owners: bool
    seconds: Mapping[str, float]

    @classmethod
    def load(cls, folder: str | Path) -> Outcome:
        """The outcome in a run folder."""
        path = Path(folder) / OUTCOME
        try:
            return _OUTCOME.validate_json(path.read_bytes())
        except FileNotFoundError:
            raise BadInput("outcome", str(path), "is not there: the job is not settled.") from None
        except (OSError, ValueError):
            raise BadInput("outcome", str(path), "cannot be read: run the job again.") from None

    def save(self, folder: Path) -> None:
        """Write ``outcome.json``."""
        plain = Outcome(**{one.name: getattr(self, one.name) for one in fields(Outcome)})
        write_json(folder / OUTCOME, _OUTCOME.dump_python(plain, mode="json"))

    @property
    def levels(self) -> Contracts:
        """The trades within the budget, as level numbers."""
        saving = np.array([row.saving_level for row in self.owners], np.int64)
        payment = np.array([row.payment_level for row in self.owners], np.int64)
        return Contracts(saving, payment, (saving > 0) | (payment > 0))

    @property
    def payments(self) -> dict[str, int]:
        """What the owners that kept their contracts were paid, in micro-units."""
        return {row.owner: row.paid_micro for row in self.owners if row.paid_micro is not None}

    @property
    def broken(self) -> dict[str, str]:
        """The owners that broke their contracts, and how."""
        return {row.owner: row.reason for row in self.owners if row.state == BROKEN}

    @property
    def left_out(self) -> dict[str, str]:
        """The owners that did not sign, and why."""
        return {row.owner: row.reason for row in self.owners if row.state == LEFT_OUT}


_OUTCOME = TypeAdapter(Outcome)


@dataclass(frozen=True)
class MarketOutcome(Outcome):
    """An outcome with the objects that the process which ran the job still has.

    Example:
        ::

            market = nm.run_market(scenario, "runs/mine")
            list(market)
            print(market.outcome.statements[0].text())
    """

    negotiation: Negotiation
    order: Order
    statements: tuple[PrivacyStatement, ...]


Steps = Generator[Event, None, MarketOutcome]
"""The events of a market, then its outcome."""


class MarketRun(Iterator[Event]):
    """A market as it runs: iterate over its events, then read its ``outcome``.

    Example:
        ::

            market = nm.run_market(scenario, "runs/mine")
            for event in market:
                print(event)
            print(market.outcome.payments)
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._outcome: MarketOutcome | None = None

    def __next__(self) -> Event:
        try:
            return next(self._steps)
        except StopIteration as end:
            self._outcome = self._outcome or end.value
            raise

    def close(self) -> None:
        """Stop here. What was finished is kept; run the same market again to go on."""
        self._steps.close()

    def finish(self) -> MarketOutcome:
        """Run to the end, and give the outcome."""
        for _ in self:
            pass
        return self.outcome

    @property
    def outcome(self) -> MarketOutcome:
        """What the job came to."""
        if self._outcome is None:
            raise NoisemarketError("The market is not over: take its events to the end first.")
        return self._outcome
