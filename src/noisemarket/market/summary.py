"""What a job came to, in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisemarket.federated.aggregation import effective_noise, effective_share
from noisemarket.federated.rounds import RoundResult
from noisemarket.formats import csv_text, finite, least_median_most
from noisemarket.game.value import worth
from noisemarket.ledger.money import MICRO
from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM, Alternative
from noisemarket.market.outcome import MarketOutcome, owner_rows

Compared = dict[str, list[Sequence[RoundResult]]]
"""What the market is compared with: for each baseline the rounds of each draw of the noise."""


def deployed(result: RoundResult | None) -> float | None:
    """The accuracy of the model that a curator would use: the averaged one, where there is one."""
    if result is None:
        return None
    return (result.averaged or result.score).accuracy


def summary(
    outcome: MarketOutcome,
    compared: Compared | None = None,
    others: Sequence[Alternative] = (),
) -> dict[str, Any]:
    """Everything that ``run --json`` prints. Money is in units here, and exact in micro-units."""
    deals, negotiation = outcome.deals, outcome.negotiation
    last = outcome.results[-1] if outcome.results else None
    paid = [outcome.payments.get(deal.owner, 0) for deal in deals.deals]
    first = outcome.statements[0]
    scenario, order = negotiation.scenario, outcome.order
    ends = {
        name: [deployed(rounds[-1]) for rounds in draws if rounds]
        for name, draws in (compared or {}).items()
    }
    drawn = ends[MARKET] = [deployed(last), *ends.get(MARKET, [])]
    ends |= {one.name: ends.get(one.same_as, []) for one in others if one.same_as is not None}
    return {
        "preset": scenario.preset,
        "mechanism": scenario.mechanism,
        "seed": scenario.seed,
        "owners": len(deals.deals),
        "rounds": len(outcome.results),
        "accuracy": None if last is None else last.score.accuracy,
        "averaged_accuracy": last.averaged.accuracy if last and last.averaged else None,
        "deployed_accuracy": deployed(last),
        "mean_accuracy": mean(drawn),
        "uniform_dp_accuracy": mean(ends.get(UNIFORM, [])),
        "no_dp_accuracy": mean(ends.get(NO_DP, [])),
        "accuracies": {"market": drawn, **{n: ends[n] for n in (UNIFORM, NO_DP) if n in ends}},
        "alternatives": _rows_of(others, ends),
        "weighting": scenario.training.weighting,
        "effective_noise": effective_noise(order.job.sigma, order.plan.shares),
        "effective_share": effective_share(order.plan.shares),
        "accuracy_per_round": [deployed(result) for result in outcome.results],
        "contracts": len(outcome.payments) + len(outcome.broken),
        "trades": deals.agreed,
        "over_budget": deals.over_budget,
        "contracts_kept": len(outcome.payments),
        "contracts_broken": len(outcome.broken),
        "broken": dict(outcome.broken),
        "left_out": dict(outcome.left_out),
        "total_paid": sum(paid) / MICRO,
        "total_paid_micro": sum(paid),
        "paid": least_median_most([one / MICRO for one in paid]),
        "owners_surplus": finite(worth(negotiation.environment, deals.levels).owners_surplus),
        "sigma_max": scenario.game.sigma_max,
        "sigma": least_median_most([deal.sigma for deal in deals.deals]),
        "rho": least_median_most([one.rho_total for one in outcome.statements]),
        "epsilon": least_median_most([one.epsilon for one in outcome.statements]),
        "delta": first.delta,
        "neighbours": str(first.neighbours),
        "guaranteed": all(one.guaranteed for one in outcome.statements),
        "secure_noise": not any(one.simulated for one in outcome.statements),
        "seconds": {step: round(value, 3) for step, value in outcome.seconds.items()},
        "ledger_head": outcome.head,
    }


def _rows_of(
    others: Sequence[Alternative], ends: Mapping[str, Sequence[float | None]]
) -> list[dict[str, Any]]:
    """What else could have been bought, with the accuracy that it was trained to."""
    before = next((one.epsilon for one in others if one.name == UNIFORM), None)
    rows = []
    for one in others:
        assert before is not None  # no trade is always among them
        trained = list(ends.get(one.name, []))
        sold = one.epsilon - before if np.isfinite(before).all() else np.array([np.inf])
        rows.append(
            {
                "name": one.name,
                "mechanism": one.mechanism,
                "accuracies": trained,
                "mean_accuracy": mean(trained),
                "paid": one.paid,
                "sellers": one.sellers,
                "effective_noise": one.effective_noise,
                "epsilon_sold": finite(float(sold.sum())),
                "curator_value": one.curator_value,
                "owners_surplus": one.owners_surplus,
                "same_as": one.same_as,
            }
        )
    return rows


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def owner_figures(outcome: MarketOutcome) -> list[dict[str, Any]]:
    """What each owner agreed to, gave up, weighed and was paid. Infinite epsilon is None."""
    same = ("owner", "records", "saving", "sigma", "epsilon", "delta", "weight")
    return [
        {
            **{name: row[name] for name in same},
            "payment": row["payment_micro"] / MICRO,
            "paid": (row["paid_micro"] or 0) / MICRO,
            "kept": row["state"] == "paid",
        }
        for row in owner_rows(outcome)
    ]


def owners_csv(outcome: MarketOutcome) -> str:
    """``owner_figures`` as CSV."""
    rows = owner_figures(outcome)
    shown = (row | {"kept": str(row["kept"]).lower()} for row in rows)
    return csv_text(rows[0], (row.values() for row in shown))
