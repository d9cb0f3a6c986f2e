"""What a market is while it runs, and what it came to."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.errors import NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.market.deals import Deals
from noisemarket.market.events import Broken, Event, LeftOut, Paid, Settled
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.orders import Order
from noisemarket.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class MarketOutcome:
    """What a job came to. It exists once the job is settled, and is complete.

    Args:
        negotiation: the game and its contracts, both sides of it: the experimenter's.
        deals: what was traded within the budget.
        order: what was trained.
        results: the rounds.
        statements: what each owner gave up.
        payments: what each owner that kept its contract is paid, in micro-units.
        broken: the owners that did not, and why.
        left_out: the owners that did not sign, and why.
        head: pins the ledger as it is now.
        seconds: what each step took.

    Example:
        ::

            outcome = nm.run_market(scenario, "runs/mine").finish()
            print(outcome.results[-1].accuracy, outcome.payments)
    """

    negotiation: Negotiation
    deals: Deals
    order: Order
    results: tuple[RoundResult, ...]
    statements: tuple[PrivacyStatement, ...]
    payments: Mapping[str, int]
    broken: Mapping[str, str]
    left_out: Mapping[str, str]
    head: str
    seconds: Mapping[str, float]


def closing_of(events: Iterable[Event]) -> dict[str, Any]:
    """What the events of a settled job say of its outcome: who is paid, who is not, and why."""
    seen = list(events)
    return {
        "payments": {one.owner: one.amount for one in seen if isinstance(one, Paid)},
        "broken": {
            one.owner: str(one.evidence.get("reason", ""))
            for one in seen
            if isinstance(one, Broken)
        },
        "left_out": {one.owner: one.reason for one in seen if isinstance(one, LeftOut)},
        "head": next(one.head for one in seen if isinstance(one, Settled)),
    }


Steps = Generator[Event, None, MarketOutcome]
"""The events of a market; at its end, what it came to."""


class MarketRun(Iterator[Event]):
    """A market as it runs: iterate over its events, then read its ``outcome``.

    Args:
        steps: gives the events, and returns the outcome.

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
        """What the job came to.

        Raises:
            NoisemarketError: it is not over.
        """
        if self._outcome is None:
            raise NoisemarketError("The market is not over: take its events to the end first.")
        return self._outcome
