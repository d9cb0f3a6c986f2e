"""A market while it runs, and its outcome.

``outcome.json`` is written once, when a job is settled:

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

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.errors import NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.formats import finite
from noisemarket.market.events import Event
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.orders import Order
from noisemarket.market.preparation import Deals
from noisemarket.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class MarketOutcome:
    """The outcome of a settled job. ``payments`` in micro-units go to the owners that kept their
    contracts; ``broken`` gives the reason for those that did not, ``left_out`` for those that did
    not sign. ``head`` pins the ledger as it is now, and ``seconds`` are those of each step.

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


def owner_rows(outcome: MarketOutcome) -> list[dict[str, Any]]:
    """The rows of ``outcome.json``, one per owner."""
    order, deals = outcome.order, outcome.deals
    shares = order.plan.shares / order.plan.shares.sum()
    rows = zip(deals.deals, outcome.statements, order.job.partition.sizes, shares, strict=True)
    owners = []
    for index, (deal, statement, records, share) in enumerate(rows):
        name = deal.owner
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
                "reason": outcome.left_out.get(name, outcome.broken.get(name, "")),
            }
        )
    return owners


def outcome_document(outcome: MarketOutcome, job: str) -> dict[str, Any]:
    """The content of ``outcome.json``."""
    scenario, deals = outcome.negotiation.scenario, outcome.deals
    return {
        "job": job,
        "mechanism": scenario.mechanism,
        "seed": scenario.seed,
        "head": outcome.head,
        "owners": owner_rows(outcome),
        "agreed": deals.agreed,
        "over_budget": deals.over_budget,
        "total_micro": deals.total,
        "rounds": [result.to_dict() for result in outcome.results],
        "seconds": dict(outcome.seconds),
    }


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
