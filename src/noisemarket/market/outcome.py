"""What a market is while it runs, and what it came to.

``outcome.json`` is written once, when a job is settled, for whoever wants to know what it came to:

    job, mechanism, seed, head   which job, how contracts were agreed, and the ledger's head
    owners       a row for each: ``owner``, ``records``, ``saving_level`` and ``payment_level``
                 (level numbers), ``saving``, ``sigma``, ``payment_micro``, ``weight`` (its part of
                 the mean), ``rho``, ``epsilon`` (null: infinite), ``delta``, ``releases``,
                 ``paid_micro`` (null: nothing is owed), ``state`` (``paid``, ``broken`` or ``left
                 out``) and ``reason``
    agreed, over_budget, total_micro    trades within the budget, beyond it, and what they cost
    rounds       the results of all rounds, as in ``metrics.jsonl``
    seconds      what each step took
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.errors import NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.formats import finite
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


def outcome_document(outcome: MarketOutcome, job: str) -> dict[str, Any]:
    """What ``outcome.json`` holds."""
    scenario, order, deals = outcome.negotiation.scenario, outcome.order, outcome.deals
    shares = order.plan.shares / order.plan.shares.sum()
    rows = zip(deals.deals, outcome.statements, order.job.partition.sizes, shares, strict=True)
    owners = []
    for index, (deal, statement, records, share) in enumerate(rows):
        name = deal.owner
        why = outcome.left_out.get(name, outcome.broken.get(name, ""))
        state = "broken" if name in outcome.broken else "left out"
        owners.append(
            {
                "owner": name,
                "records": int(records),
                "saving_level": int(deals.levels.saving[index]),
                "payment_level": int(deals.levels.payment[index]),
                "saving": deal.saving,
                "sigma": deal.sigma,
                "payment_micro": deal.payment,
                "weight": float(share),
                "rho": finite(statement.rho_total),
                "epsilon": finite(statement.epsilon),
                "delta": statement.delta,
                "releases": statement.releases,
                "paid_micro": outcome.payments.get(name),
                "state": "paid" if name in outcome.payments else state,
                "reason": why,
            }
        )
    return {
        "job": job,
        "mechanism": scenario.mechanism,
        "seed": scenario.seed,
        "head": outcome.head,
        "owners": owners,
        "agreed": deals.agreed,
        "over_budget": deals.over_budget,
        "total_micro": deals.total,
        "rounds": [result.to_dict() for result in outcome.results],
        "seconds": dict(outcome.seconds),
    }


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
