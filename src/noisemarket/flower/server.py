"""The curator's side of a job, inside a ServerApp, and the dealing of a scenario's data to owners.

Everything that must last is in one folder, as with the embedded engine: the journal of charges, a
checkpoint after every round, a line of metrics. Run again on the same folder, a job goes on where
it stopped, whether a node, the ServerApp or the SuperLink had died.
"""

from __future__ import annotations

import inspect as inspection
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.rounds import (
    Checkpoint,
    Inspect,
    RoundResult,
    State,
    train,
)
from noisemarket.files import save_arrays
from noisemarket.flower.deployment import NodeSetup
from noisemarket.flower.engine import FlowerEngine
from noisemarket.flower.nodes import Traffic
from noisemarket.flower.owner import OwnerFolder, Terms
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.runfolder import RunFolder
from noisemarket.training import Order

if TYPE_CHECKING:
    from flwr.serverapp import Grid

METRICS, CHECKPOINT, JOURNAL = "metrics.jsonl", "checkpoint.npz", "privacy.journal"


@dataclass(frozen=True)
class Outcome:
    """What a job came to: its rounds, each owner's privacy, and what the messages took."""

    results: tuple[RoundResult, ...]
    statements: tuple[PrivacyStatement, ...]
    traffic: tuple[Traffic, ...]
    complete: bool


def model_settings(order: Order) -> dict[str, Any]:
    """What ``client.cnn`` needs to build the job's very model: all its settings, none by hand."""
    from noisemarket.federated.model import CNN

    maker = order.job.model
    if not isinstance(maker, partial) or maker.func is not CNN:
        remedy = "is not the scenario's CNN: give settings that your own app builds it from."
        raise BadInput("model", type(maker).__name__, remedy)
    given = inspection.signature(CNN).bind(*maker.args, **maker.keywords).arguments
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


def deal(
    order: Order, names: Sequence[str], model: Mapping[str, Any], root: Path
) -> list[NodeSetup]:
    """Write a folder for each owner, with its share of the data and its terms, and give the set-up
    of its SuperNode. For simulations and tests: real owners bring their own data."""
    job = order.job
    setups = []
    for index, (name, budget) in enumerate(zip(names, order.budgets, strict=True)):
        owner = OwnerFolder(name, root / name)
        where = job.partition.indices[index]
        images = job.data.ready(job.data.train_images[where])
        owner.keep_records(images, job.data.train_labels[where])
        owner.agree(
            Terms(
                job=order.fingerprint,
                owner=name,
                index=index,
                sigma=float(job.sigma[index]),
                protection=job.protection.name,
                settings=job.protection.settings(),
                model=model,
                neighbours=str(budget.neighbours),
                delta=budget.delta,
                rho_cap=budget.rho_cap,
                noise=job.noise,
                seed=job.seed,
                rounds=order.plan.rounds,
            )
        )
        config = {"owner": name, "owner-folder": str(owner.path.resolve())}
        setups.append(NodeSetup(name, config))
    return setups


def train_over_flower(
    grid: Grid,
    order: Order,
    names: Sequence[str],
    folder: RunFolder,
    *,
    timeout: float = 600.0,
    grace: float = math.inf,
    wait: float = 120.0,
    insecure: bool = False,
    at_once: int = 0,
    show: Callable[[str], None] = print,
    inspect: Inspect | None = None,
) -> Outcome:
    """Train a job over a grid, to the end of its plan or of all owners' budgets.

    ``timeout``, ``grace``, ``insecure`` and ``at_once`` are the engine's. Waits at most ``wait``
    seconds for all owners to come, and later for one to be there. Owners that are away when a round
    begins are neither asked nor charged. ``inspect`` may refuse uploads.
    """
    checkpoint = Checkpoint(folder.path / CHECKPOINT, order.fingerprint)
    engine = FlowerEngine(
        grid, order.job, names, order.fingerprint,
        timeout=timeout, grace=grace, insecure=insecure, at_once=at_once,
    )  # fmt: skip
    state = checkpoint.load()
    if state is None:
        state = State.first(engine.first_weights())
    with JournalledAccountant(folder.path / JOURNAL, order.budgets) as accountant:
        lines = (json.dumps(result.to_dict()) + "\n" for result in state.results)
        folder.write_text(METRICS, "".join(lines))
        show(f"{len(engine.meet(wait))} of {len(names)} owners are here.")

        def present(number: int) -> list[int]:
            if not (here := engine.meet(wait, at_least=1)):
                raise NoisemarketError(f"No owner is here for round {number + 1}: run again later.")
            return here

        for result in train(
            engine, order.job, accountant, order.plan, state, checkpoint, inspect, present
        ):
            folder.append(METRICS, json.dumps(result.to_dict()) + "\n")
            refused = "".join(f", {names[owner]} {why}" for owner, why in result.refused)
            show(
                f"Round {result.number} of {order.plan.rounds}: accuracy "
                f"{result.score.accuracy:.1f} %, loss {result.score.loss:.3f}, "
                f"{result.owners} owners, {result.seconds:.1f} s{refused}."
            )
        statements = order.statements(accountant)
    save_arrays(folder.path / "model.npz", weights=state.weights, averaged=state.averaged)
    folder.write_json(
        "statements.json", [one.to_dict() | {"text": one.text()} for one in statements]
    )
    folder.write_json("traffic.json", [asdict(one) for one in engine.traffic])
    complete = state.round_number >= order.plan.rounds
    return Outcome(tuple(state.results), statements, tuple(engine.traffic), complete)
