"""A job over a grid without a market: owners' folders with their terms, and training alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid
from tests.support.agreed import agree

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import Job
from noisemarket.federated.rounds import Checkpoint, RoundResult, State, train
from noisemarket.files import save_arrays
from noisemarket.flower.flower_channel import Bounds, FlowerChannel, Traffic
from noisemarket.market.channel import ChannelEngine
from noisemarket.market.orders import Order
from noisemarket.market.run_folder import MarketFolder
from noisemarket.owner.folder import OwnerFolder
from noisemarket.owner.terms import contract_of
from noisemarket.privacy.accountant import JournalledAccountant, PrivacyStatement


@dataclass(frozen=True)
class Trained:
    """What a job came to: its rounds, each owner's privacy, and what the messages took."""

    results: tuple[RoundResult, ...]
    statements: tuple[PrivacyStatement, ...]
    traffic: tuple[Traffic, ...]
    complete: bool


def deal(
    order: Order, names: Sequence[str], model: Mapping[str, Any], root: Path
) -> dict[str, dict[str, Any]]:
    """Write a folder for each owner, with its share of the data and its terms; gives the configs of
    their nodes."""
    job, configs = order.job, dict[str, dict[str, Any]]()
    for index, (name, budget) in enumerate(zip(names, order.budgets, strict=True)):
        owner = OwnerFolder(name, root / name)
        held = job.partition.indices[index]
        owner.keep_records(job.data.ready(job.data.train_images[held]), job.data.train_labels[held])
        stated = {
            "job": order.fingerprint,
            "owner": name,
            "owner_key": owner.key.public_hex,
            "curator_key": "0" * 64,
            "saving": 0.0,
            "sigma": float(job.sigma[index]),
            "payment": 0,
            "offered_at": "2020-01-01T00:00:00+00:00",
            "expires_at": "2030-02-01T00:00:00+00:00",
            "rounds": order.plan.rounds,
            "protection": job.protection.name,
            "settings": job.protection.settings(),
            "neighbours": str(budget.neighbours),
            "delta": budget.delta,
            "simulated": job.noise == "simulated",
            "false_alarm": 1e-3,
            "weight_cap": None,
            "count_cap": None,
        }
        plan = {"index": index, "seed": job.seed, "model": dict(model)}
        agree(owner, contract_of(stated, budget, len(held)), plan)
        configs[name] = {"owner": name, "owner-folder": str(owner.path.resolve())}
    return configs


class FlowerEngine(ChannelEngine):
    """Training over a line, without a market."""

    def __init__(
        self, grid: Grid, names: Sequence[str], bounds: Bounds, job: Job, job_id: str
    ) -> None:
        channel = FlowerChannel(grid, names, MarketFolder(Path()), bounds)
        self.line = channel
        super().__init__(channel, job, job_id)


def engine_over(
    grid: Grid, job: Job, names: Sequence[str], job_id: str, **bounds: Any
) -> FlowerEngine:
    return FlowerEngine(grid, names, Bounds(**bounds), job, job_id)


def meet(channel: FlowerChannel, wait: float, at_least: int) -> list[int]:
    """The owners that are there, once there are so many or the wait is over."""
    end = time.monotonic() + wait
    while len(here := list(channel.present())) < at_least and time.monotonic() < end:
        time.sleep(0.25)
    return here


def train_over(
    grid: Grid,
    order: Order,
    names: Sequence[str],
    path: Path,
    *,
    show: Callable[[str], None] = lambda line: None,
    **bounds: Any,
) -> Trained:
    """Train a job over a grid, to the end of its plan or of all owners' budgets."""
    path.mkdir(exist_ok=True)
    checkpoint = Checkpoint(path / "checkpoint.npz", order.fingerprint)
    engine = engine_over(grid, order.job, names, order.fingerprint, **bounds)
    line, wait = engine.line, engine.line.bounds.wait
    state = checkpoint.load() or State.first(engine.first_weights())
    with JournalledAccountant(path / "privacy.journal", order.budgets) as accountant:
        show(f"{len(meet(line, wait, len(names)))} of {len(names)} owners are here.")

        def present(number: int) -> list[int]:
            if not (here := meet(line, wait, 1)):
                raise NoisemarketError("No owner is here.")
            return here

        rounds = train(
            engine, order.job, accountant, order.plan, state, checkpoint, present=present
        )
        for result in rounds:
            show(json.dumps(result.to_dict()))
        statements = order.statements(accountant)
    save_arrays(path / "model.npz", weights=state.weights)
    complete = state.rounds_done >= order.plan.rounds
    return Trained(tuple(state.results), statements, tuple(line.traffic), complete)
