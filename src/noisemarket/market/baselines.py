"""What training would have come to without a market, and under other draws of the noise.

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

UNIFORM, MARKET, NO_DP = "uniform_dp", "market", "no_dp"
"""All noise (no trade), that of the contracts, and none."""


def baseline(
    name: str,
    scenario: Scenario,
    order: Order,
    folder: Path,
    *,
    draw: int = 1,
    workers: int | None = None,
    watch: Callable[[RoundResult], object] = lambda result: None,
    stop: Callable[[], bool] | None = None,
) -> Training:
    """Train the same job with sigma_max for all, with the noise of its contracts, or with none.

    Where weights and the server's steps follow the noise, they follow this noise. The noise is
    simulated; each ``draw`` has its own. A baseline that was stopped goes on where it was.
    """
    one = {UNIFORM: scenario.game.sigma_max, NO_DP: 0.0}.get(name)
    sigma = order.job.sigma if one is None else np.full(len(order.job), one)
    seed = order.job.seed if draw == 1 else _seed(order.job.seed, draw)
    job = replace(order.job, sigma=sigma, noise="simulated", noise_key=None, seed=seed)
    budgets = tuple(
        replace(budget, sigma=float(kept), simulated=True, rho_cap=float("inf"))
        for budget, kept in zip(order.budgets, sigma, strict=True)
    )
    plan = plan_of(scenario.training, job)
    named = f"{name} {draw} {order.fingerprint}"
    ordered = replace(order, job=job, plan=plan, budgets=budgets, fingerprint=named)
    folder.mkdir(parents=True, exist_ok=True)
    stem = name if draw == 1 else f"{name}-{draw}"
    checkpoint = Checkpoint(folder / f"{stem}.npz", ordered.fingerprint)
    with JournalledAccountant(folder / f"{stem}.journal", budgets) as accountant:
        return carry_out(ordered, accountant, checkpoint, workers=workers, watch=watch, stop=stop)


def _seed(seed: int, draw: int) -> int:
    return int(np.random.SeedSequence((seed, draw)).generate_state(1, np.uint64)[0] >> 1)
