"""Training under contract, round by round: charge, train, screen, aggregate, test, checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from noisemarket.errors import BadInput
from noisemarket.federated.aggregation import aggregate
from noisemarket.federated.engine import Engine, Job, Score, Weights, at_model
from noisemarket.federated.protections import Upload
from noisemarket.files import load_arrays, save_arrays
from noisemarket.privacy.accountant import Accountant, Charge
from noisemarket.privacy.noise import NoiseSource, round_noise

_KEPT = "kept-"  # before the names of the arrays that an inspection keeps

Inspect = Callable[[int, Weights, dict[int, Upload]], Mapping[int, str]]
"""Looks at a round's uploads, before any of them counts: round, global model, and all uploads that
can be used. Returns the owners to refuse, with reasons; another upload that it puts in the place of
one counts instead. Rounds count from 1, here as everywhere."""

Present = Callable[[int], Collection[int]]
"""The owners that take part in a round, at most; the others are neither invited nor charged."""

Begin = Callable[[int, Collection[int]], None]
"""Is told that a round begins: it was charged to these owners, and nothing of it is released."""

Refused = tuple[tuple[int, str], ...]
"""Owners whose uploads do not count in a round, and why."""


@dataclass(frozen=True)
class RoundResult:
    """A round's result. ``delivered`` are the owners whose uploads moved the model."""

    number: int
    score: Score
    averaged: Score | None
    seconds: float
    owners: int
    refused: tuple[tuple[int, str], ...]
    delivered: tuple[int, ...] = ()

    @property
    def charged(self) -> tuple[int, ...]:
        return tuple(sorted({*self.delivered, *(owner for owner, _ in self.refused)}))

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with null for a loss that is not finite."""
        values: dict[str, Any] = _RESULT.dump_python(self, mode="json")
        return values


_RESULT = TypeAdapter(RoundResult)


@dataclass
class State:
    """The global model, the average of the models, and the rounds so far.

    ``inspector`` is the state of the inspection of uploads, plain values for JSON, and ``kept`` the
    arrays that it stores. ``velocity`` is a single zero where there is no momentum.
    """

    weights: Weights
    averaged: Weights
    results: list[RoundResult] = field(default_factory=list)
    job: str = ""
    inspector: dict[str, Any] = field(default_factory=dict)
    velocity: Weights = field(default_factory=lambda: np.zeros(1))
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def rounds_done(self) -> int:
        return len(self.results)

    @classmethod
    def first(cls, weights: Weights, job: str = "") -> State:
        return cls(weights.copy(), weights.copy(), job=job)


class Checkpoint:
    """The state after each round on disk, whole or not at all, for one job and no other."""

    def __init__(self, path: Path, fingerprint: str, *, private: bool = False) -> None:
        self.path, self.fingerprint, self._private = path, fingerprint, private

    def save(self, state: State) -> None:
        """Write the state; a crash leaves the one before."""
        kept: dict[str, Any] = {_KEPT + name: array for name, array in state.kept.items()}
        save_arrays(
            self.path,
            private=self._private,
            fingerprint=self.fingerprint,
            round_number=state.rounds_done,
            weights=state.weights,
            averaged=state.averaged,
            velocity=state.velocity,
            results=json.dumps([result.to_dict() for result in state.results]),
            extra=json.dumps({"job": state.job, **state.inspector}),
            **kept,
        )

    def load(self, like: State | None = None) -> State | None:
        """The last state, None if there is none yet; it must have the shape of ``like``."""
        if not self.path.exists():
            return None
        try:
            saved = load_arrays(self.path)
            if str(saved["fingerprint"]) != self.fingerprint:
                raise BadInput("checkpoint", str(self.path), "belongs to another scenario.")
            results = [read_result(line) for line in json.loads(str(saved["results"]))]
            inspector = dict(json.loads(str(saved["extra"])))
            job = str(inspector.pop("job", ""))
            models, velocity = (saved["weights"], saved["averaged"]), saved["velocity"]
            shape = saved["weights"].shape if like is None else like.weights.shape
            for array, shapes in (*((one, [shape]) for one in models), (velocity, [shape, (1,)])):
                if array.dtype.kind != "f" or array.shape not in shapes:
                    raise ValueError("its weights are not those of this model")
                if not np.isfinite(array).all():
                    raise ValueError("its weights are not finite")
            kept = {
                name.removeprefix(_KEPT): array
                for name, array in saved.items()
                if name.startswith(_KEPT)
            }
            return State(*models, results, job, inspector, velocity, kept)
        except RecursionError:
            raise BadInput("checkpoint", str(self.path), "cannot be read (too deep).") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
            raise BadInput("checkpoint", str(self.path), f"cannot be read ({problem}).") from None


def read_result(line: Mapping[str, Any]) -> RoundResult:
    """A round's result from what ``to_dict`` made of it."""
    return _RESULT.validate_python(line)


@dataclass(frozen=True)
class TrainingPlan:
    """How long to train and how to aggregate.

    ``averaging`` above 0 adds an exponential average of the global models; ``rate`` multiplies the
    mean update; ``weight_cap`` is the largest part of one owner in the mean of a round.
    """

    rounds: int
    shares: NDArray[np.float64]
    averaging: float = 0.0
    rate: float = 1.0
    momentum: float = 0.0
    weight_cap: float = 1.0


def train(
    engine: Engine,
    job: Job,
    accountant: Accountant,
    plan: TrainingPlan,
    state: State,
    checkpoint: Checkpoint | None = None,
    inspect: Inspect | None = None,
    present: Present | None = None,
    *,
    begin: Begin | None = None,
    once: bool = False,
) -> Iterator[RoundResult]:
    """Train from ``state`` to the end of the plan, changing ``state`` as rounds are done.

    Every release is charged before it is made, and ``begin`` is told in between. Owners whose
    budget would be passed sit out; if all would, training ends. Malformed uploads, and those that
    ``inspect`` refuses, move nothing. With ``once``, a round that was cut off is made again bit by
    bit, or refused before anything more is charged: a second release would cost privacy that nobody
    pays for.
    """
    check_charges(accountant, state)

    def rounds() -> Iterator[RoundResult]:
        if checkpoint is not None and state.rounds_done == 0:
            checkpoint.save(state)  # before anything is charged, it is known to which job
        noise = job.noise_source()
        while state.rounds_done < plan.rounds:
            start, number = time.monotonic(), state.rounds_done + 1
            invited = range(len(job)) if present is None else sorted(set(present(number)))
            here = at_model(noise, state.weights)
            if once:
                _check_once(accountant, job, here, number)
            owners = _charged(accountant, here, number, invited)
            if not owners and not any(accountant.may_start(owner) for owner in range(len(job))):
                return
            if begin is not None:
                begin(number, owners)
            uploads = engine.train(number, state.weights, owners) if owners else {}
            good, refused = screen(uploads, state.weights.size)
            if inspect is not None:
                good, refused = refuse(inspect(number, state.weights, good), good, refused, uploads)
            weights, velocity = _moved(state, good, plan)
            past = plan.averaging if number > 1 else 0.0
            averaged = past * state.averaged + (1.0 - past) * weights
            scores = engine.score(weights), engine.score(averaged) if plan.averaging > 0 else None
            seconds = time.monotonic() - start
            delivered = tuple(sorted(good))
            result = RoundResult(number, *scores, seconds, len(good), refused, delivered)
            state.weights, state.averaged, state.velocity = weights, averaged, velocity
            state.results.append(result)
            if checkpoint is not None:
                checkpoint.save(state)
            yield result

    return rounds()


def check_charges(accountant: Accountant, state: State) -> None:
    """Refuse an account that does not hold every release of the rounds that are done."""
    held = {(charge.owner, charge.round) for charge in accountant.charges}
    for result in state.results:
        if any((owner, result.number) not in held for owner in result.charged):
            where = str(getattr(accountant, "path", "none"))
            remedy = f"lacks the charges of round {result.number}: give that job's whole journal."
            raise BadInput("journal", where, remedy)


def screen(uploads: dict[int, Upload | None], dimension: int) -> tuple[dict[int, Upload], Refused]:
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


def refuse(
    refusals: Mapping[int, str],
    good: dict[int, Upload],
    refused: Refused,
    uploads: Mapping[int, Upload | None],
) -> tuple[dict[int, Upload], Refused]:
    """Take out what the caller refuses; what could not be used anyway keeps its own reason."""
    for owner in refusals:
        if owner not in uploads:
            raise BadInput("inspect", owner, "refuse only owners that took part in the round.")
    more = tuple((owner, str(why)) for owner, why in refusals.items() if owner in good)
    left = {owner: upload for owner, upload in good.items() if owner not in refusals}
    return left, tuple(sorted(refused + more))


def _moved(state: State, uploads: dict[int, Upload], plan: TrainingPlan) -> tuple[Weights, Weights]:
    """The next global model, and the velocity with which it goes on."""
    cap = plan.weight_cap
    if plan.momentum == 0.0:
        moved = aggregate(state.weights, uploads, plan.shares, plan.rate, cap)
        return moved, state.velocity
    if not uploads:
        return state.weights, state.velocity
    mean = aggregate(np.zeros_like(state.weights), uploads, plan.shares, weight_cap=cap)
    velocity = plan.momentum * state.velocity + mean
    return state.weights + plan.rate * velocity, velocity


def _check_once(accountant: Accountant, job: Job, noise: NoiseSource, number: int) -> None:
    """Refuse a round that was charged under other noise than it would get now."""
    before = {charge.owner for charge in accountant.charges if charge.round == number}
    for owner in range(len(job)):
        release = round_noise(noise, owner, number).release_id()
        if owner in before and not accountant.charged(owner, number, release):
            was, now = str(getattr(accountant, "made_by", "")) or "something else", job.made_by
            changed = "the key of the noise or the data is another"
            if was != now:
                changed = f"it began with {was}, and this is {now}"
            remedy = (
                f"was already released with different noise ({changed}). Another release would "
                "cost the owners more privacy for the same pay: resume as it began, or start a "
                "new job."
            )
            raise BadInput("round", number, remedy)


def _charged(
    accountant: Accountant, noise: NoiseSource, number: int, owners: Collection[int]
) -> list[int]:
    """Charge the round to all of these owners that can still pay for it."""
    able = []
    for owner in owners:
        release = round_noise(noise, owner, number).release_id()
        if accountant.charged(owner, number, release) or accountant.may_start(owner):
            able.append((owner, release))
    costs = {budget.owner: budget.rho_per_round for budget in accountant.budgets}
    accountant.charge_all(Charge(owner, number, costs[owner], name) for owner, name in able)
    return [owner for owner, _ in able]
