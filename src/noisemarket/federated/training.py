"""Training under contract, round by round: charge, train, screen, aggregate, test, checkpoint."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.protections import Upload
from noisemarket.privacy.accountant import Accountant, Charge
from noisemarket.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise


@dataclass(frozen=True)
class Plan:
    """How long to train and how to aggregate.

    ``shares`` weigh the owners' updates. ``averaging`` above 0 keeps an exponential average of the
    global models beside them: work on what was released, so it costs no privacy.
    """

    rounds: int
    shares: NDArray[np.float64]
    averaging: float = 0.0


@dataclass(frozen=True)
class RoundResult:
    """What a round came to. ``averaged`` scores the average of the global models, where kept."""

    number: int
    score: Score
    averaged: Score | None
    seconds: float
    owners: int
    refused: tuple[tuple[int, str], ...]


@dataclass
class State:
    """Where training stands: the next round, the global model and the average of the models, and
    what the rounds so far came to."""

    round_number: int
    weights: Weights
    averaged: Weights
    results: list[RoundResult] = field(default_factory=list)


def train(
    engine: Engine,
    job: Job,
    accountant: Accountant,
    plan: Plan,
    state: State,
    checkpoint: Checkpoint | None = None,
) -> Iterator[RoundResult]:
    """Train from ``state`` to the end of the plan, changing ``state`` as rounds are done.

    Every release is charged before it is made. Owners whose budget would be passed sit out; if all
    would, training ends. Uploads that are malformed move nothing and are reported.
    """
    noise: NoiseSource = SecureNoise() if job.noise == "secure" else SimulatedNoise(job.seed)
    while state.round_number < plan.rounds:
        start, number = time.monotonic(), state.round_number
        owners = _charged(accountant, noise, number, len(job))
        if not owners:
            return
        uploads = engine.train(number, state.weights, owners)
        good, refused = screen(uploads, engine.dimension)
        state.weights = aggregate(state.weights, good, plan.shares)
        kept = plan.averaging if number > 0 else 0.0
        state.averaged = kept * state.averaged + (1.0 - kept) * state.weights
        score = engine.score(state.weights)
        averaged = engine.score(state.averaged) if plan.averaging > 0 else None
        seconds = time.monotonic() - start
        result = RoundResult(number + 1, score, averaged, seconds, len(good), refused)
        state.round_number = number + 1
        state.results.append(result)
        if checkpoint is not None:
            checkpoint.save(state)
        yield result


def _charged(accountant: Accountant, noise: NoiseSource, number: int, owners: int) -> list[int]:
    """Charge the round to all owners that can still pay for it."""
    able = []
    for owner in range(owners):
        release = noise.stream(owner, number).release_id()
        if accountant.charged(owner, number, release) or accountant.may_start(owner):
            able.append((owner, release))
    costs = {budget.owner: budget.rho_per_round for budget in accountant.budgets}
    accountant.charge_all(Charge(owner, number, costs[owner], name) for owner, name in able)
    return [owner for owner, _ in able]


def screen(
    uploads: dict[int, Upload | None], dimension: int
) -> tuple[dict[int, Upload], tuple[tuple[int, str], ...]]:
    """The uploads that can be used, and why the others cannot."""
    good: dict[int, Upload] = {}
    refused = []
    for owner, upload in sorted(uploads.items()):
        if upload is None:
            refused.append((owner, "missing"))
        elif upload.shape != (dimension,) or upload.dtype.kind != "f":
            refused.append((owner, "wrong shape"))
        elif not np.isfinite(upload).all():
            refused.append((owner, "not finite"))
        else:
            good[owner] = upload
    return good, tuple(refused)


def aggregate(weights: Weights, uploads: dict[int, Upload], shares: NDArray[np.float64]) -> Weights:
    """The global model moved by the weighted mean of the updates, summed in the owners' order."""
    present = sorted(uploads)
    whole = float(shares[present].sum()) if present else 0.0
    if whole <= 0.0:
        return weights
    moved = weights.copy()
    for owner in present:
        moved += (shares[owner] / whole) * uploads[owner].astype(np.float64)
    return moved


class Checkpoint:
    """The state after each round on disk, whole or not at all, for one job and no other."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint

    def save(self, state: State) -> None:
        """Write the state; a crash leaves the one before."""
        memory = io.BytesIO()
        np.savez(
            memory,
            fingerprint=self.fingerprint,
            round_number=state.round_number,
            weights=state.weights,
            averaged=state.averaged,
            results=json.dumps([asdict(result) for result in state.results]),
        )
        beside = self.path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(memory.getvalue())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)

    def load(self) -> State | None:
        """The last state, None if there is none yet."""
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                if str(saved["fingerprint"]) != self.fingerprint:
                    raise BadInput("checkpoint", str(self.path), "belongs to another scenario.")
                results = [_result(line) for line in json.loads(str(saved["results"]))]
                number = int(saved["round_number"])
                return State(number, saved["weights"], saved["averaged"], results)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as problem:
            raise BadInput("checkpoint", str(self.path), f"cannot be read ({problem}).") from None


def _result(line: dict[str, Any]) -> RoundResult:
    """A round's result from what ``asdict`` made of it."""
    averaged = None if line["averaged"] is None else Score(**line["averaged"])
    refused = tuple((int(owner), str(why)) for owner, why in line["refused"])
    fields = line | {"score": Score(**line["score"]), "averaged": averaged, "refused": refused}
    return RoundResult(**fields)
