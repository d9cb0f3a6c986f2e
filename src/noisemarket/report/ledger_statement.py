"""What a contract cost its owner in privacy and paid it, as plain values."""

from __future__ import annotations

import math
from typing import Any

from noisemarket.ledger.entries import DELIVERED, MISSED, REFUSED
from noisemarket.ledger.queries import Account
from noisemarket.plain import finite
from noisemarket.privacy.zcdp import gaussian_epsilon, zcdp_epsilon

_STATED = ("saving", "sigma", "protection", "neighbours", "protects", "whole_owner", "simulated")


def contract_statement(account: Account) -> dict[str, Any]:
    """What a contract cost its owner and paid it, as plain values; infinity is null."""
    contract = account.contract
    total = math.fsum(each.rho for each in account.rounds)
    return {
        "contract": contract.id,
        "job": contract.job,
        "state": account.state,
        **{name: getattr(contract, name) for name in _STATED},
        "guaranteed": math.isfinite(total + contract.rho_per_round) and not contract.simulated,
        "delta": contract.delta,
        "rho_per_round": finite(contract.rho_per_round),
        "epsilon_per_round": finite(gaussian_epsilon(contract.rho_per_round, contract.delta)),
        "rho_cap": finite(contract.rho_cap),
        "epsilon_agreed": finite(contract.epsilon),
        "rounds": contract.rounds,
        "delivered": account.count(DELIVERED),
        "missed": account.count(MISSED),
        "refused": account.count(REFUSED),
        "rho_total": finite(total),
        "epsilon": finite(gaussian_epsilon(total, contract.delta)),
        "epsilon_general": finite(zcdp_epsilon(total, contract.delta)),
        "payment_micro": contract.payment,
        "paid_micro": account.paid,
        "kept": account.kept,
        "evidence": account.evidence,
        "each_round": [
            {
                "round": each.round,
                "outcome": each.outcome,
                "rho": finite(each.rho),
                "epsilon": finite(gaussian_epsilon(each.rho, contract.delta)),
                "reason": each.reason,
            }
            for each in account.rounds
        ],
    }
