"""What owners' uploads did to the test loss, as the curator is told after the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import here, scenario

from noisemarket.federated.aggregation import aggregate
from noisemarket.federated.engine import score_of
from noisemarket.market.inspection import Contributions
from noisemarket.market.orders import order
from noisemarket.market.outcome import Outcome
from noisemarket.market.training import SerialEngine
from noisemarket.show.market_report import harmful_uploads, sellers_table

pytestmark = pytest.mark.training


def figures(outcome: Outcome) -> list[tuple[float | None, float | None]]:
    return [(row.loss_lowered, row.loss_lowered_error) for row in outcome.owners]


def made(images: Path, sigma: float) -> Any:
    chosen = scenario(images, model="features", protection="per_record")
    environment = chosen.environment()
    job = order(chosen, environment, np.full(len(environment), sigma))
    return replace(job, plan=replace(job.plan, rate=0.1))  # so short that losses are linear


def test_it_is_the_change_of_the_test_loss_without_an_owners_upload(images: Path) -> None:
    job = made(images, 0.01)
    plan, start = job.plan, job.job.first_weights()
    with SerialEngine(job.job) as engine:
        uploads: Any = engine.train(1, start, range(4))
    added = Contributions(job, {})
    added.bound(1, start, uploads)
    model = job.job.model(job.job.seed)
    shares = plan.shares

    def loss(those: Any) -> float:
        whole = shares[sorted(uploads)].sum() / shares[sorted(those)].sum()
        travel = plan.rate / (1.0 - plan.momentum)  # a step goes on in the rounds that follow
        moved = aggregate(start, those, shares, travel / whole)
        return score_of(model, moved, job.job.data).loss

    for owner in uploads:
        without = {other: one for other, one in uploads.items() if other != owner}
        lowered, _ = added.figures(owner)
        assert lowered == pytest.approx(loss(without) - loss(uploads), rel=0.05)
        assert lowered > 0.0


def test_its_error_is_what_noise_alone_adds(images: Path) -> None:
    job = made(images, 0.3)
    start, rng = job.job.first_weights(), np.random.default_rng(5)
    found = []
    for _ in range(300):
        added = Contributions(job, {})
        noise = {0: rng.normal(0.0, 0.3, start.size).astype(np.float32)}
        added.bound(1, start, noise)
        found.append(added.figures(0)[0])
    error = added.figures(0)[1]
    assert np.std(found) == pytest.approx(error, rel=0.15)
    assert abs(np.mean(found)) < 4.0 * error / np.sqrt(300)


def test_uploads_against_the_model_move_nothing_and_others_stay_as_they_are(images: Path) -> None:
    job = made(images, 0.1)
    start, rng = job.job.first_weights(), np.random.default_rng(5)
    with SerialEngine(job.job) as engine:
        uploads: Any = engine.train(1, start, range(4))
    with SerialEngine(made(images, 0.001).job) as engine:
        bare: Any = engine.train(1, start, [1])[1]
    added, push = Contributions(job, {}), -bare / np.linalg.norm(bare)
    for number in (1, 2, 3):  # noise may hide it in a single round
        noised = (push + rng.normal(0.0, 0.1, start.size)).astype(np.float32)
        sent = uploads | {1: noised, 2: noised}
        counted = dict(sent)
        added.bound(number, start, counted, refused={2: "not its noise"})
        assert all(counted[owner] is sent[owner] for owner in (0, 2, 3))
    assert not counted[1].any()


def test_the_report_names_an_owner_that_pushes_against_the_model_and_pay_does_not_depend_on_it(
    images: Path, tmp_path: Path
) -> None:
    chosen = scenario(
        images, model="features", protection="per_record", rounds=8, sigma_max=0.1,
    )  # fmt: skip
    outcome = here(chosen, tmp_path, faults=[{"owner": "1", "kind": "push"}]).finish()
    (line,) = harmful_uploads(outcome)
    assert "owner 1 raise the test loss" in line
    assert outcome.owners[1].state == "paid"
    assert all(1 in result.delivered for result in outcome.results)
    assert "±" in str(next(iter(sellers_table(outcome).columns[-1].cells)))
    assert figures(Outcome.load(tmp_path)) == figures(outcome)


def test_the_report_names_nobody_where_nothing_bounds_an_update(
    images: Path, tmp_path: Path
) -> None:
    """As under ``paper``, where an honest owner without noise has an error of 0."""
    for protection, told in (("paper", 0), ("per_record", 1)):
        chosen = scenario(images, model="features", protection=protection, rounds=1)
        outcome = here(chosen, tmp_path / protection).finish()
        row = replace(outcome.owners[0], loss_lowered=-0.002, loss_lowered_error=0.0)
        assert len(harmful_uploads(replace(outcome, owners=(row,)))) == told


def test_a_job_that_is_cut_off_after_every_round_reports_the_same(
    images: Path, tmp_path: Path
) -> None:
    chosen = scenario(images)
    whole = here(chosen, tmp_path / "whole").finish()
    cuts = 0
    while True:
        run = here(chosen, tmp_path / "cut")
        try:
            for _ in range(7 + cuts):
                next(run)
        except StopIteration:
            break
        run.close()
        cuts += 1
    assert cuts >= 2
    assert figures(run.outcome) == figures(whole)
    assert all(error for _, error in figures(whole))
