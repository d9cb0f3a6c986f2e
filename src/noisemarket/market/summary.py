"""What a job came to, in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from noisemarket.federated.rounds import RoundResult
from noisemarket.ledger.money import MICRO
from noisemarket.market.outcome import MarketOutcome


def deployed(result: RoundResult | None) -> float | None:
    """The accuracy of the model that a curator would use: the averaged one, where there is one."""
    if result is None:
        return None
    return (result.averaged or result.score).accuracy


def summary(
    outcome: MarketOutcome, baselines: Mapping[str, RoundResult | None] | None = None
) -> dict[str, Any]:
    """Everything that ``run --json`` prints. Money is in units here, and exact in micro-units."""
    deals, negotiation = outcome.deals, outcome.negotiation
    last = outcome.results[-1] if outcome.results else None
    paid = [outcome.payments.get(deal.owner, 0) for deal in deals.deals]
    first = outcome.statements[0]
    answers = baselines or {}
    scenario = negotiation.scenario
    return {
        "preset": scenario.preset,
        "mechanism": scenario.mechanism,
        "seed": scenario.seed,
        "owners": len(deals.deals),
        "rounds": len(outcome.results),
        "accuracy": None if last is None else last.score.accuracy,
        "averaged_accuracy": last.averaged.accuracy if last and last.averaged else None,
        "deployed_accuracy": deployed(last),
        "uniform_dp_accuracy": deployed(answers.get("uniform_dp")),
        "no_dp_accuracy": deployed(answers.get("no_dp")),
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
        "paid": spread(np.array(paid) / MICRO),
        "sigma": spread(np.array([deal.sigma for deal in deals.deals])),
        "rho": spread(np.array([one.rho_total for one in outcome.statements])),
        "epsilon": spread(np.array([one.epsilon for one in outcome.statements])),
        "delta": first.delta,
        "neighbours": str(first.neighbours),
        "guaranteed": all(one.guaranteed for one in outcome.statements),
        "secure_noise": not any(one.simulated for one in outcome.statements),
        "seconds": {step: round(value, 3) for step, value in outcome.seconds.items()},
        "ledger_head": outcome.head,
    }


def spread(values: np.ndarray) -> dict[str, float | None]:
    """Least, middle and greatest; None for what is infinite."""
    shown = {"min": values.min(), "median": np.median(values), "max": values.max()}
    return {name: float(v) if math.isfinite(v) else None for name, v in shown.items()}
