"""Server momentum: the velocity of the mean, in the checkpoint and through missing rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.federated.test_rounds import OWNERS, SIZE, Fake, budgets, fresh, job, plan

from noisemarket.federated.rounds import Checkpoint, TrainingPlan, train
from noisemarket.privacy.accountant import Accountant

MEAN = 1.5  # of the owners' own numbers; each round adds 1


def with_momentum(rounds: int = 4) -> TrainingPlan:
    return replace(plan(rounds), momentum=0.5, rate=2.0)


def test_the_velocity_adds_up() -> None:
    state = fresh()
    list(train(Fake(), job(), Accountant(budgets()), with_momentum(), state))
    weight = velocity = 0.0
    for number in range(4):
        velocity = 0.5 * velocity + MEAN + number
        weight += 2.0 * velocity
    np.testing.assert_allclose(state.weights, np.full(SIZE, weight))
    np.testing.assert_allclose(state.velocity, np.full(SIZE, velocity))


def test_no_momentum_is_plain_averaging() -> None:
    moved, still = fresh(), fresh()
    list(train(Fake(), job(), Accountant(budgets()), replace(plan(), momentum=1e-300), moved))
    list(train(Fake(), job(), Accountant(budgets()), plan(), still))
    np.testing.assert_allclose(moved.weights, still.weights)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_job_that_goes_on_keeps_its_velocity(cut: int, tmp_path: Path) -> None:
    whole = fresh()
    list(train(Fake(), job(), Accountant(budgets()), with_momentum(), whole))

    accountant, checkpoint = Accountant(budgets()), Checkpoint(tmp_path / "state.npz", "mine")
    rounds = train(Fake(), job(), accountant, with_momentum(), fresh(), checkpoint)
    for _ in range(cut):
        next(rounds)
    rounds.close()
    state = checkpoint.load()
    assert state is not None
    assert state.rounds_done == cut
    assert state.velocity.any()
    list(train(Fake(), job(), accountant, with_momentum(), state, checkpoint))
    np.testing.assert_array_equal(state.weights, whole.weights)
    np.testing.assert_array_equal(state.velocity, whole.velocity)


def test_a_round_without_uploads_moves_nothing() -> None:
    def refuse_round_2(number: int, _: object, uploads: object) -> dict[int, str]:
        return dict.fromkeys(range(OWNERS), "no") if number == 2 else {}

    state = fresh()
    rounds = train(
        Fake(), job(), Accountant(budgets()), with_momentum(), state, inspect=refuse_round_2
    )
    next(rounds)
    before = state.weights.copy(), state.velocity.copy()
    next(rounds)
    np.testing.assert_array_equal(state.weights, before[0])
    np.testing.assert_array_equal(state.velocity, before[1])
