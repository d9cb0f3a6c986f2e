"""What training would have come to without a market: with all the noise, and with none.

An experiment by whoever holds all the data, as a simulation does. In a real consortium it would
cost the owners' privacy a second time; there, leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from noisemarket.federated.rounds import Checkpoint, RoundResult
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.scenario import Scenario
from noisemarket.training import Order, Training, carry_out
from noisemarket.training.tuning import plan_of

UNIFORM, NO_DP = "uniform_dp", "no_dp"


def baseline(
    name: str,
    scenario: Scenario,
    order: Order,
    folder: Path,
    *,
    workers: int | None = None,
    watch: Callable[[RoundResult], object] = lambda result: None,
    stop: Callable[[], bool] | None = None,
) -> Training:
    """Train the same job with one sigma for all: ``sigma_max`` for uniform DP, 0 for no DP.

    Where weights and the server's steps follow the noise, they follow this noise. The noise is
    simulated. A baseline that was stopped goes on where it was.
    """
    sigma = scenario.game.sigma_max if name == UNIFORM else 0.0
    job = replace(
        order.job, sigma=np.full(len(order.job), sigma), noise="simulated", noise_key=None
    )
    budgets = tuple(
        replace(budget, sigma=sigma, simulated=True, rho_cap=float("inf"))
        for budget in order.budgets
    )
    plan = plan_of(scenario.training, job)
    named = f"{name} {order.fingerprint}"
    ordered = replace(order, job=job, plan=plan, budgets=budgets, fingerprint=named)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(folder / f"{name}.npz", ordered.fingerprint)
    with JournalledAccountant(folder / f"{name}.journal", budgets) as accountant:
        return carry_out(ordered, accountant, checkpoint, workers=workers, watch=watch, stop=stop)
