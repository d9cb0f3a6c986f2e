"""Training under contract, round by round: charge, train, screen, aggregate, test, checkpoint."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Engine, Job, Score, Weights, at_model
from noisemarket.federated.protections import Upload
from noisemarket.files import save_arrays
from noisemarket.plain import finite
from noisemarket.privacy.accountant import Accountant, Charge
from noisemarket.privacy.noise import NoiseSource

Inspect = Callable[[int, Weights, Mapping[int, Upload]], Mapping[int, str]]
"""Looks at a round's uploads, before any of them counts: round, global model, and all uploads that
can be used. Returns whom to refuse, and why. Rounds count from 0, here as in the engine and the
ledger."""

Present = Callable[[int], Collection[int]]
"""The owners that take part in a round, at most; the others are neither asked nor charged."""


@dataclass(frozen=True)
class TrainingPlan:
    """How long to train and how to aggregate.

    ``shares`` weigh the owners' updates. ``averaging`` above 0 keeps an exponential average of the
    global models beside them, ``decay`` shrinks the global model in every round, and ``rate``
    multiplies the mean update: work on what was released, so none of it costs privacy.
    """

    rounds: int
    shares: NDArray[np.float64]
    averaging: float = 0.0
    decay: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True)
class RoundResult:
    """What a round came to. ``averaged`` scores the average of the global models, where kept.

    ``delivered`` are the owners whose uploads moved the model, ``owners`` says how many they are.
    """

    number: int
    score: Score
    averaged: Score | None
    seconds: float
    owners: int
    refused: tuple[tuple[int, str], ...]
    delivered: tuple[int, ...] = ()

    @property
    def asked(self) -> tuple[int, ...]:
        """All owners that the round was charged to."""
        return tuple(sorted({*self.delivered, *(owner for owner, _ in self.refused)}))

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; a loss that is not finite is null."""
        values = asdict(self)
        for score in (values["score"], values["averaged"]):
            if score is not None:
                score["loss"] = finite(score["loss"])
        return values


@dataclass
class State:
    """Where training stands: the next round, the global model and the average of the models, and
    what the rounds so far came to.

    ``job`` names the job in the market. ``inspector`` is what the inspection of uploads goes on
    from: plain values for JSON.
    """

    round_number: int
    weights: Weights
    averaged: Weights
    results: list[RoundResult] = field(default_factory=list)
    job: str = ""
    inspector: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def first(cls, weights: Weights, job: str = "") -> State:
        """Before the first round."""
        return cls(0, weights.copy(), weights.copy(), job=job)


def train(
    engine: Engine,
    job: Job,
    accountant: Accountant,
    plan: TrainingPlan,
    state: State,
    checkpoint: Checkpoint | None = None,
    inspect: Inspect | None = None,
    present: Present | None = None,
) -> Iterator[RoundResult]:
    """Train from ``state`` to the end of the plan, changing ``state`` as rounds are done.

    Every release is charged before it is made. Owners whose budget would be passed sit out; if all
    would, training ends. Uploads that are malformed, or that ``inspect`` refuses, move nothing and
    are reported. A round that is cut off leaves ``state`` as it was. An account that lacks a charge
    of the rounds that are done is refused.
    """
    check_charges(accountant, state)
    return _rounds(engine, job, accountant, plan, state, checkpoint, inspect, present)


def check_charges(accountant: Accountant, state: State) -> None:
    """Refuse an account that does not hold every release of the rounds that are done."""
    held = {(charge.owner, charge.round) for charge in accountant.charges}
    for result in state.results:
        if any((owner, result.number - 1) not in held for owner in result.asked):
            where = str(getattr(accountant, "path", "none"))
            remedy = f"lacks the charges of round {result.number}: give that job's whole journal."
            raise BadInput("journal", where, remedy)


def _rounds(
    engine: Engine,
    job: Job,
    accountant: Accountant,
    plan: TrainingPlan,
    state: State,
    checkpoint: Checkpoint | None,
    inspect: Inspect | None,
    present: Present | None,
) -> Iterator[RoundResult]:
    if checkpoint is not None and state.round_number == 0:
        checkpoint.save(state)  # before anything is charged, it is known to which job
    noise = job.noise_source()
    while state.round_number < plan.rounds:
        start, number = time.monotonic(), state.round_number
        asked = range(len(job)) if present is None else sorted(set(present(number)))
        owners = _charged(accountant, at_model(noise, state.weights), number, asked)
        if not owners and not any(accountant.may_start(owner) for owner in range(len(job))):
            return
        uploads = engine.train(number, state.weights, owners) if owners else {}
        good, refused = screen(uploads, engine.dimension)
        if inspect is not None:
            good, refused = _refuse(inspect(number, state.weights, good), good, refused, uploads)
        weights = aggregate(state.weights, good, plan.shares, plan.decay, plan.rate)
        kept = plan.averaging if number > 0 else 0.0
        averaged = kept * state.averaged + (1.0 - kept) * weights
        scores = engine.score(weights), engine.score(averaged) if plan.averaging > 0 else None
        seconds = time.monotonic() - start
        delivered = tuple(sorted(good))
        result = RoundResult(number + 1, *scores, seconds, len(good), refused, delivered)
        state.weights, state.averaged, state.round_number = weights, averaged, number + 1
        state.results.append(result)
        if checkpoint is not None:
            checkpoint.save(state)
        yield result


def _charged(
    accountant: Accountant, noise: NoiseSource, number: int, owners: Collection[int]
) -> list[int]:
    """Charge the round to all of these owners that can still pay for it."""
    able = []
    for owner in owners:
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
        elif upload.shape != (dimension,):
            refused.append((owner, "wrong shape"))
        elif upload.dtype != np.float32:
            refused.append((owner, "wrong type"))
        elif not np.isfinite(upload).all():
            refused.append((owner, "not finite"))
        else:
            good[owner] = upload
    return good, tuple(refused)


def _refuse(
    refusals: Mapping[int, str],
    good: dict[int, Upload],
    refused: tuple[tuple[int, str], ...],
    uploads: Mapping[int, Upload | None],
) -> tuple[dict[int, Upload], tuple[tuple[int, str], ...]]:
    """Take out what the caller refuses; what could not be used anyway keeps its own reason."""
    for owner in refusals:
        if owner not in uploads:
            raise BadInput("inspect", owner, "refuse only owners that took part in the round.")
    more = tuple((owner, str(why)) for owner, why in refusals.items() if owner in good)
    left = {owner: upload for owner, upload in good.items() if owner not in refusals}
    return left, tuple(sorted(refused + more))


def aggregate(
    weights: Weights,
    uploads: dict[int, Upload],
    shares: NDArray[np.float64],
    decay: float = 0.0,
    rate: float = 1.0,
) -> Weights:
    """The global model moved by the weighted mean of the updates, summed in the owners' order.

    The mean counts ``rate`` times. The model is first shrunk by ``decay``, which keeps the noise of
    past rounds from piling up.
    """
    present = sorted(uploads)
    whole = float(shares[present].sum()) if present else 0.0
    if whole <= 0.0:
        return weights
    moved = (1.0 - decay) * weights
    for owner in present:
        moved += (rate * shares[owner] / whole) * uploads[owner].astype(np.float64)
    return moved


class Checkpoint:
    """The state after each round on disk, whole or not at all, for one job and no other."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint

    def save(self, state: State) -> None:
        """Write the state; a crash leaves the one before."""
        save_arrays(
            self.path,
            fingerprint=self.fingerprint,
            round_number=state.round_number,
            weights=state.weights,
            averaged=state.averaged,
            results=json.dumps([result.to_dict() for result in state.results]),
            extra=json.dumps({"job": state.job, **state.inspector}),
        )

    def load(self) -> State | None:
        """The last state, None if there is none yet."""
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                if str(saved["fingerprint"]) != self.fingerprint:
                    raise BadInput("checkpoint", str(self.path), "belongs to another scenario.")
                results = [read_result(line) for line in json.loads(str(saved["results"]))]
                number = int(saved["round_number"])
                models = saved["weights"], saved["averaged"]
                inspector = dict(json.loads(str(saved["extra"])))
                job = str(inspector.pop("job", ""))
                return State(number, *models, results, job, inspector)
        except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as problem:
            raise BadInput("checkpoint", str(self.path), f"cannot be read ({problem}).") from None


def read_result(line: Mapping[str, Any]) -> RoundResult:
    """A round's result from what ``to_dict`` made of it."""
    averaged = None if line["averaged"] is None else _score(line["averaged"])
    refused = tuple((int(owner), str(why)) for owner, why in line["refused"])
    delivered = tuple(map(int, line["delivered"]))
    made = {"averaged": averaged, "refused": refused, "delivered": delivered}
    return RoundResult(**{**line, "score": _score(line["score"]), **made})


def _score(values: Mapping[str, Any]) -> Score:
    return Score(values["accuracy"], math.inf if values["loss"] is None else values["loss"])
