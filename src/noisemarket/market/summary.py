"""What a job came to, in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisemarket.federated.rounds import RoundResult
from noisemarket.formats import csv_text, finite, least_median_most
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.value import JointValue, worth
from noisemarket.ledger.money import MICRO
from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM, Alternative
from noisemarket.market.outcome import PAID, Outcome

Compared = dict[str, list[Sequence[RoundResult]]]
"""What the market is compared with: for each baseline the rounds of each draw of the noise."""


def deployed(result: RoundResult | None) -> float | None:
    """The accuracy of the model that a curator would use: the averaged one, where there is one."""
    if result is None:
        return None
    return (result.averaged or result.score).accuracy


def summary(
    outcome: Outcome,
    environment: Environment,
    compared: Compared | None = None,
    others: Sequence[Alternative] = (),
) -> dict[str, Any]:
    """Everything that ``run --json`` prints. Money is in units here, and exact in micro-units."""
    rows, last = outcome.owners, outcome.results[-1] if outcome.results else None
    paid = [row.paid_micro or 0 for row in rows]
    ends = {
        name: [deployed(rounds[-1]) for rounds in draws if rounds]
        for name, draws in (compared or {}).items()
    }
    drawn = ends[MARKET] = [deployed(last), *ends.get(MARKET, [])]
    ends |= {one.name: ends.get(one.same_as, []) for one in others if one.same_as is not None}
    payments, broken = outcome.payments, outcome.broken
    value, agreed = JointValue.of(environment), worth(environment, outcome.levels)
    total = sum(paid) / MICRO
    no_trade = Contracts.same(len(environment), 0, 0)
    return {
        "preset": outcome.preset,
        "mechanism": outcome.mechanism,
        "seed": outcome.seed,
        "owners": len(rows),
        "rounds": len(outcome.results),
        "accuracy": None if last is None else last.score.accuracy,
        "averaged_accuracy": last.averaged.accuracy if last and last.averaged else None,
        "deployed_accuracy": deployed(last),
        "mean_accuracy": mean(drawn),
        "uniform_dp_accuracy": mean(ends.get(UNIFORM, [])),
        "no_dp_accuracy": mean(ends.get(NO_DP, [])),
        "accuracies": {"market": drawn, **{n: ends[n] for n in (UNIFORM, NO_DP) if n in ends}},
        "alternatives": _rows_of(others, ends, value),
        "weighting": outcome.weighting,
        "effective_noise": outcome.effective_noise,
        "effective_share": outcome.effective_share,
        "accuracy_per_round": [deployed(result) for result in outcome.results],
        "contracts": len(payments) + len(broken),
        "trades": outcome.agreed,
        "over_budget": outcome.over_budget,
        "contracts_kept": len(payments),
        "contracts_broken": len(broken),
        "broken": broken,
        "left_out": outcome.left_out,
        "owners_at_cap": sum(bool(row.reason) and row.state == PAID for row in rows),
        "simulated_owners": outcome.simulated_owners,
        "currency": outcome.currency,
        "total_paid": total,
        "total_paid_micro": sum(paid),
        "paid": least_median_most([one / MICRO for one in paid]),
        "predicted_accuracy": agreed.model_quality,
        "predicted_no_trade_accuracy": value.fitted_quality(no_trade),
        "predicted_value": finite(agreed.predicted_value),
        "trained_value": trained_value(value, mean(drawn), mean(ends.get(UNIFORM, [])), total),
        "owners_surplus": finite(agreed.owners_surplus),
        "sigma_max": outcome.sigma_max,
        "sigma": least_median_most([row.sigma for row in rows]),
        "rho": least_median_most([row.rho for row in rows]),
        "epsilon": least_median_most([row.epsilon for row in rows]),
        "delta": rows[0].delta,
        "neighbours": outcome.neighbours,
        "guaranteed": outcome.guaranteed,
        "secure_noise": outcome.secure_noise,
        "seconds": {step: round(value, 3) for step, value in outcome.seconds.items()},
        "ledger_head": outcome.head,
    }


def _rows_of(
    others: Sequence[Alternative], ends: Mapping[str, Sequence[float | None]], value: JointValue
) -> list[dict[str, Any]]:
    """What else could have been bought, with the accuracy that it was trained to."""
    before = next((one.epsilon for one in others if one.name == UNIFORM), None)
    base = mean(ends.get(UNIFORM, []))
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
                "predicted_value": one.predicted_value,
                "trained_value": (
                    None
                    if one.mechanism is None
                    else trained_value(value, mean(trained), base, one.paid)
                ),
                "owners_surplus": one.owners_surplus,
                "same_as": one.same_as,
            }
        )
    return rows


def trained_value(
    value: JointValue, accuracy: float | None, no_trade: float | None, paid: float
) -> float | None:
    """The curator's value over no trade by trained accuracies, in per cent, less what was paid."""
    if accuracy is None or no_trade is None:
        return None
    return value.quality_price * (accuracy - no_trade) - value.money_price * paid


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def owner_figures(outcome: Outcome) -> list[dict[str, Any]]:
    """What each owner agreed to, gave up, weighed and was paid. Infinite epsilon is None."""
    same = ("owner", "records", "saving", "sigma")
    return [
        {
            **{name: getattr(row, name) for name in same},
            "epsilon": finite(row.epsilon),
            "delta": row.delta,
            "weight": row.weight,
            "payment": row.payment_micro / MICRO,
            "paid": (row.paid_micro or 0) / MICRO,
            "kept": row.state == PAID,
            "loss_lowered": row.loss_lowered,
            "loss_lowered_error": row.loss_lowered_error,
        }
        for row in outcome.owners
    ]


def owners_csv(outcome: Outcome) -> str:
    """``owner_figures`` as CSV."""
    rows = owner_figures(outcome)
    shown = (row | {"kept": str(row["kept"]).lower()} for row in rows)
    return csv_text(rows[0], (row.values() for row in shown))
