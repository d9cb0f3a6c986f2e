"""What training would have come to without a market, and under other draws of the noise.

An experiment by whoever holds all the data, as a simulation does. One baseline trains without noise
on the same records, so beside a statement that guarantees epsilon it guarantees nothing: with one's
own data and real noise it has to be asked for, and its files are for the user alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from noisemarket.errors import Interrupted
from noisemarket.federated.rounds import Checkpoint, RoundResult
from noisemarket.files import private_folder
from noisemarket.game.levels import FloatArray
from noisemarket.market.local_engine import SerialEngine
from noisemarket.market.orders import Order, plan_of
from noisemarket.market.training import carry_out
from noisemarket.privacy.accountant import JournalledAccountant
from noisemarket.scenario import Scenario

UNIFORM, MARKET, NO_DP = "uniform_dp", "market", "no_dp"
"""All noise (no trade), that of the contracts, and none."""

BASELINES = "baselines/rounds.jsonl"
"""Where a run keeps the rounds of its baselines as they are trained, a line each."""


def plan_line(rounds: int) -> str:
    """How many rounds all baselines have together, in one line."""
    return json.dumps({"rounds": rounds}) + "\n"


def round_line(name: str, draw: int, result: RoundResult) -> str:
    """A round of a baseline, in one line."""
    return json.dumps({"baseline": name, "draw": draw, "result": result.to_dict()}) + "\n"


def harmless(scenario: Scenario) -> bool:
    """Whether training without noise tells nothing: the data is public, or the noise is simulated
    and hides nothing anyway."""
    return not scenario.training.data or scenario.privacy.noise == "simulated"


@dataclass(frozen=True)
class Draw:
    """One baseline to be trained: its name, its noise, and which draw of the noise."""

    name: str
    sigma: FloatArray
    draw: int


class BaselineWork:
    """Trains baselines of a job, here or in another process; tells the result of every round.

    Where weights and the server's steps follow the noise, they follow that of the baseline. The
    noise is simulated; each draw has its own. A baseline that was stopped goes on where it was.

    Args:
        scenario: of the job.
        order: of the job; no other process gets its secrets.
        folder: where baselines are kept.
        serial: on one core, as a process among others; otherwise with processes of its own.
        workers: how many of these.
        stop: when it returns True, no round is begun.
    """

    def __init__(
        self,
        scenario: Scenario,
        order: Order,
        folder: Path,
        *,
        serial: bool = True,
        workers: int | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._scenario, self._order = scenario, with_noise(order, scenario, order.job.sigma)
        self._folder, self._serial, self._workers, self._stop = folder, serial, workers, stop

    def __call__(
        self, task: Draw, tell: Callable[[RoundResult], object]
    ) -> tuple[RoundResult, ...]:  # fmt: skip
        seed, stem = self._order.job.seed, task.name
        if task.draw > 1:
            seed, stem = _seed(seed, task.draw), f"{task.name}-{task.draw}"
        named = f"{task.name} {task.draw} {self._order.fingerprint}"
        order = with_noise(self._order, self._scenario, task.sigma, seed)
        order = replace(order, fingerprint=named)
        private_folder(self._folder)
        checkpoint = Checkpoint(self._folder / f"{stem}.npz", named, private=True)
        journal = self._folder / f"{stem}.journal"
        journal.touch(mode=0o600)
        with JournalledAccountant(journal, order.budgets) as accountant:
            done = carry_out(
                order, accountant, checkpoint, engine=SerialEngine if self._serial else None,
                workers=self._workers, watch=tell, stop=self._stop,
            )  # fmt: skip
        if not done.complete:
            raise Interrupted("stopped; what was finished is kept.")
        return done.rounds


def with_noise(
    order: Order, scenario: Scenario, sigma: FloatArray, seed: int | None = None
) -> Order:
    """An order with other noise, which is simulated; no cap ends it."""
    seed = order.job.seed if seed is None else seed
    job = replace(order.job, sigma=sigma, noise="simulated", noise_key=None, seed=seed)
    budgets = tuple(
        replace(budget, sigma=float(kept), simulated=True, rho_cap=float("inf"))
        for budget, kept in zip(order.budgets, sigma, strict=True)
    )
    plan = plan_of(scenario.training, job, order.beta)
    return replace(order, job=job, plan=plan, budgets=budgets)


def _seed(seed: int, draw: int) -> int:
    return int(np.random.SeedSequence((seed, draw)).generate_state(1, np.uint64)[0] >> 1)
