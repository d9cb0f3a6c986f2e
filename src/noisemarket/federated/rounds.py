"""Training under contract, round by round: charge, train, screen, aggregate, test, checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.checkpoint import Checkpoint, RoundResult, State
from noisemarket.federated.engine import Engine, Job, Weights, at_model
from noisemarket.federated.protections import Upload
from noisemarket.federated.weighting import capped
from noisemarket.privacy.accountant import Accountant, Charge
from noisemarket.privacy.noise import NoiseSource, round_noise

__all__ = ["Begin", "Checkpoint", "Inspect", "Present", "RoundResult", "State",
           "TrainingPlan", "aggregate", "check_charges", "screen", "train"]  # fmt: skip

Inspect = Callable[[int, Weights, Mapping[int, Upload]], Mapping[int, str]]
"""Looks at a round's uploads, before any of them counts: round, global model, and all uploads that
can be used. Returns whom to refuse, and why. Rounds count from 1, here as everywhere."""

Present = Callable[[int], Collection[int]]
"""The owners that take part in a round, at most; the others are neither invited nor charged."""

Begin = Callable[[int, Collection[int]], None]
"""Is told that a round begins: it was charged to these owners, and nothing of it is released."""

Refused = tuple[tuple[int, str], ...]
"""Owners whose uploads do not count in a round, and why."""


@dataclass(frozen=True)
class TrainingPlan:
    """How long to train and how to aggregate.

    ``shares`` weigh the owners' updates. ``averaging`` above 0 keeps an exponential average of the
    global models beside them, ``rate`` multiplies the mean update, and ``momentum`` has it go on in
    later rounds: work on what was released, so none of it costs privacy. ``weight_cap`` is the
    largest part of one owner in the mean of a round.
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
    budget would be passed sit out; if all would, training ends. Uploads that are malformed, or that
    ``inspect`` refuses, move nothing and are reported. A round that is cut off leaves ``state`` as
    it was. An account that lacks a charge of the rounds that are done is refused. With ``once``, a
    round that was cut off is made again bit by bit, or refused before anything more is charged: a
    second release would cost the owners privacy that nobody pays for.
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
            good, refused = screen(uploads, engine.dimension)
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


def aggregate(
    weights: Weights,
    uploads: dict[int, Upload],
    shares: NDArray[np.float64],
    rate: float = 1.0,
    weight_cap: float = 1.0,
) -> Weights:
    """The global model moved by the weighted mean of the updates, summed in the owners' order.

    The mean counts ``rate`` times. No owner has a larger part in the mean than ``weight_cap``.
    """
    present = sorted(uploads)
    counts = capped(shares[present], weight_cap) if present else np.zeros(0)
    whole = float(counts.sum())
    if whole <= 0.0:
        return weights
    moved = weights.copy()
    for owner, count in zip(present, counts.tolist(), strict=True):
        moved += (rate * count / whole) * uploads[owner].astype(np.float64)
    return moved


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
                f"was charged and cannot be made again bit by bit ({changed}); a second release "
                "would cost the owners more for the same pay: go on as it began, or start anew."
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
