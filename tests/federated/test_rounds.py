"""The rounds: charged before they are trained, screened, aggregated, and resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.federated.no_engine import OWNERS, SIZE, Fake, budgets, fresh, job, plan

from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.aggregation import aggregate
from noisemarket.federated.engine import Score, Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.rounds import screen, train
from noisemarket.privacy.accountant import Accountant, JournalledAccountant


class TestCharges:
    @pytest.mark.parametrize("noise", ["simulated", "secure"])
    def test_once_per_owner_and_round_before_training(self, noise: str) -> None:
        accountant = Accountant(budgets())
        engine = Fake(accountant)
        results = list(train(engine, job(noise), accountant, plan(), fresh()))
        assert [result.number for result in results] == [1, 2, 3]
        assert engine.paid == [4, 8, 12]
        assert {(c.owner, c.round) for c in accountant.charges} == {
            (owner, number) for owner in range(OWNERS) for number in (1, 2, 3)
        }
        for budget in budgets():
            owner = budget.owner
            assert accountant.spent(owner) == pytest.approx(3 * budget.rho_per_round)
            assert budget.rho_per_round == pytest.approx(budget.sensitivity**2 / 0.5)
            assert accountant.statement(owner).rounds == 3

    def test_nothing_is_charged_before_a_round_is_asked_for(self) -> None:
        accountant = Accountant(budgets())
        rounds = train(Fake(), job(), accountant, plan(), fresh())
        assert not accountant.charges
        next(rounds)
        assert len(accountant.charges) == OWNERS

    def test_owners_beyond_their_cap_sit_out_and_training_ends(self) -> None:
        cost = [budget.rho_per_round for budget in budgets()]
        caps = [2 * cost[0], 0.0, 1.5 * cost[2], 2 * cost[3]]
        accountant = Accountant(budgets(caps))
        engine, state = Fake(accountant), fresh()
        results = list(train(engine, job(), accountant, plan(10), state))
        assert engine.asked == [(1, [0, 2, 3]), (2, [0, 3])]
        assert [result.owners for result in results] == [3, 2]
        assert state.rounds_done == 2
        for owner, cap in enumerate(caps):
            assert accountant.spent(owner) <= cap * (1 + 1e-9)

    def test_a_round_run_again_costs_nothing_if_its_bits_are_the_same(self) -> None:
        for noise, releases in (("simulated", 1), ("secure", 2)):
            accountant = Accountant(budgets())
            for _ in range(2):
                next(train(Fake(), job(noise), accountant, plan(), fresh()))
            assert accountant.statement(0).releases == releases
            assert accountant.statement(0).rounds == 1

    def test_a_round_already_paid_for_is_trained_although_the_cap_is_reached(self) -> None:
        caps = [budget.rho_per_round for budget in budgets()]
        accountant = Accountant(budgets(caps))
        for _ in range(2):
            engine = Fake()
            assert len(list(train(engine, job(), accountant, plan(), fresh()))) == 1
            assert engine.asked == [(1, [0, 1, 2, 3])]

    def test_a_failing_engine_has_been_charged_for(self, tmp_path: Path) -> None:
        class Broken(Fake):
            def train(self, *_: object) -> dict[int, Upload | None]:  # type: ignore[override]
                raise RuntimeError("gone")

        with JournalledAccountant(tmp_path / "j", budgets()) as accountant:
            with pytest.raises(RuntimeError, match="gone"):
                next(train(Broken(), job(), accountant, plan(), fresh()))
            assert len(accountant.charges) == OWNERS
        with JournalledAccountant(tmp_path / "j", budgets()) as accountant:
            assert len(accountant.charges) == OWNERS

    @pytest.mark.parametrize("kept", [3, 2, 1, 0])  # lines of 4: the budgets, and three rounds
    def test_a_job_does_not_go_on_without_the_charges_of_its_rounds(
        self, tmp_path: Path, kept: int
    ) -> None:
        path, state = tmp_path / "j", fresh()
        with JournalledAccountant(path, budgets()) as accountant:
            list(train(Fake(bad=np.zeros(1)), job(), accountant, plan(3), state))
            train(Fake(), job(), accountant, plan(4), state)
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) == 4
        path.write_bytes(b"".join(lines[:kept]))
        for rounds in (3, 4):  # also a job that is done
            with (
                JournalledAccountant(path, budgets()) as accountant,
                pytest.raises(BadInput, match=rf"^journal {path} lacks the charges of round"),
            ):
                train(Fake(), job(), accountant, plan(rounds), state)

    def test_the_charge_of_a_refused_upload_is_missed_as_well(self, tmp_path: Path) -> None:
        accountant, state = Accountant(budgets()), fresh()
        list(train(Fake(bad=np.zeros(1)), job(), accountant, plan(1), state))
        less = Accountant(budgets())
        less.charge_all(charge for charge in accountant.charges if charge.owner != 1)
        with pytest.raises(BadInput, match="lacks the charges of round 1"):
            train(Fake(), job(), less, plan(2), state)


class TestScreen:
    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            (np.zeros(SIZE + 1, np.float32), "wrong shape"),
            (np.zeros((1, SIZE), np.float32), "wrong shape"),
            (np.zeros(SIZE, np.int32), "wrong type"),
            (np.full(SIZE, 1e200), "wrong type"),
            (np.array(["rubbish"] * SIZE), "wrong type"),
            (np.full(SIZE, np.nan, np.float32), "not finite"),
            (np.array([0, 0, np.inf, 0, 0, 0], np.float32), "not finite"),
            (np.array([0, 0, -np.inf, 0, 0, 0], np.float32), "not finite"),
        ],
    )
    def test_malformed_uploads_move_nothing_and_are_reported(
        self, bad: np.ndarray, why: str
    ) -> None:
        state = fresh()
        (result,) = train(Fake(bad=bad), job(), Accountant(budgets()), plan(1), state)
        assert result.refused == ((1, why),)
        assert result.owners == 3
        assert state.weights == pytest.approx(np.full(SIZE, 5 / 3))

    def test_missing(self) -> None:
        good, refused = screen({2: None, 0: np.zeros(SIZE, np.float32)}, SIZE)
        assert set(good) == {0}
        assert refused == ((2, "missing"),)
        assert screen({}, SIZE) == ({}, ())


class TestInspect:
    def test_it_sees_every_upload_before_any_counts_and_may_refuse(self) -> None:
        seen: list[tuple[int, float, list[int]]] = []

        def inspect(number, weights, uploads):  # type: ignore[no-untyped-def]
            seen.append((number, float(weights[0]), sorted(uploads)))
            assert uploads[2][0] == 1 + number
            return {3: "too much noise", 1: "late"} if number == 1 else {}

        state = fresh()
        made = list(train(Fake(), job(), Accountant(budgets()), plan(2), state, inspect=inspect))
        assert made[0].refused == ((1, "late"), (3, "too much noise"))
        assert made[0].delivered == (0, 2)
        assert made[0].owners == 2
        assert made[1].delivered == (0, 1, 2, 3)
        assert made[1].refused == ()
        assert seen == [(1, 0.0, [0, 1, 2, 3]), (2, 1.0, [0, 1, 2, 3])]  # moved by (0 + 2) / 2
        assert state.weights == pytest.approx(np.full(SIZE, 1.0 + 2.5))

    @pytest.mark.parametrize(
        ("bad", "why"),
        [(np.full(SIZE, np.nan, np.float32), "not finite"), (np.array(["x"] * SIZE), "wrong type")],
    )
    def test_what_cannot_be_used_is_not_shown_and_keeps_its_own_reason(
        self, bad: np.ndarray, why: str
    ) -> None:
        seen: list[int] = []

        def inspect(number, weights, uploads):  # type: ignore[no-untyped-def]
            seen.extend(uploads)
            return {1: "compliance", 2: "compliance"}

        rounds = train(
            Fake(bad=bad), job(), Accountant(budgets()), plan(1), fresh(), inspect=inspect
        )
        assert next(rounds).refused == ((1, why), (2, "compliance"))
        assert seen == [0, 2, 3]

    def test_only_owners_of_the_round_can_be_refused(self) -> None:
        rounds = train(
            Fake(), job(), Accountant(budgets()), plan(1), fresh(),
            inspect=lambda *_: {1: "x"}, present=lambda number: {0, 2},
        )  # fmt: skip
        with pytest.raises(BadInput, match="took part"):
            next(rounds)


class TestPresent:
    def test_who_is_not_there_is_neither_asked_nor_charged(self) -> None:
        there = {0: [3, 1], 1: [], 2: [0, 1, 2, 3]}
        accountant, state = Accountant(budgets()), fresh()
        engine = Fake(accountant)
        results = list(
            train(
                engine, job(), accountant, plan(3), state, present=lambda number: there[number - 1]
            )
        )
        assert engine.asked == [(1, [1, 3]), (3, [0, 1, 2, 3])]
        assert [result.delivered for result in results] == [(1, 3), (), (0, 1, 2, 3)]
        assert results[0].score == results[1].score  # a round with nobody moves nothing
        assert [accountant.statement(owner).rounds for owner in range(OWNERS)] == [1, 2, 1, 2]

    def test_unknown_owners_are_refused(self) -> None:
        rounds = train(
            Fake(), job(), Accountant(budgets()), plan(1), fresh(), present=lambda number: {9}
        )
        with pytest.raises(BadInput, match="no privacy budget"):
            next(rounds)

    def test_spent_budgets_end_training_also_for_those_who_are_away(self) -> None:
        caps = [budget.rho_per_round for budget in budgets()]
        accountant = Accountant(budgets(caps))
        results = list(
            train(
                Fake(), job(), accountant, plan(9), fresh(),
                present=lambda number: [number - 1] if number <= OWNERS else [],
            )
        )  # fmt: skip
        assert [result.delivered for result in results] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(("noise", "releases"), [("simulated", 1), ("secure", 2)])
@pytest.mark.parametrize("where", ["train", "score"])
def test_a_round_cut_off_is_charged_leaves_no_trace_and_is_repeated(
    noise: str, releases: int, where: str
) -> None:
    class Cut(Fake):
        def train(self, number: int, weights: Weights, owners: Sequence[int]):  # type: ignore[no-untyped-def]
            if where == "train":
                raise Interrupted("now")
            return super().train(number, weights, owners)

        def score(self, weights: Weights) -> Score:
            raise Interrupted("now")

    accountant, state = Accountant(budgets()), fresh()
    with pytest.raises(Interrupted):
        next(train(Cut(), job(noise), accountant, plan(1), state))
    assert state.rounds_done == 0
    assert not state.results
    assert not state.weights.any()
    assert len(accountant.charges) == OWNERS
    (result,) = train(Fake(), job(noise), accountant, plan(1), state)
    assert result.number == 1
    assert state.weights == pytest.approx(np.full(SIZE, 1.5))
    for owner in range(OWNERS):
        assert accountant.statement(owner).releases == releases
        assert accountant.statement(owner).rounds == 1


class TestAggregate:
    def test_it_is_the_weighted_mean_of_those_present(self) -> None:
        shares = np.array([1.0, 2.0, 5.0, 0.0])
        uploads = {0: np.full(3, 3, np.float32), 1: np.full(3, 6, np.float32)}
        assert aggregate(np.ones(3), uploads, shares) == pytest.approx(np.full(3, 6.0))

    def test_its_bits_do_not_depend_on_the_order_of_answers(self) -> None:
        rng = np.random.default_rng(4)
        uploads = {i: rng.normal(size=50).astype(np.float32) for i in range(20)}
        shares, start = rng.random(20), rng.normal(size=50)
        kept = start.copy()
        first = aggregate(start, uploads, shares)
        for _ in range(5):
            order = rng.permutation(20)
            other = aggregate(start, {int(i): uploads[int(i)] for i in order}, shares)
            assert np.array_equal(first, other)
        assert np.array_equal(start, kept)

    @pytest.mark.parametrize("uploads", [{}, {3: np.ones(3, np.float32)}])
    def test_nothing_usable_moves_nothing(self, uploads: dict[int, Upload]) -> None:
        shares = np.array([1.0, 1.0, 1.0, 0.0])
        assert np.array_equal(aggregate(np.arange(3.0), uploads, shares), np.arange(3.0))


def test_averaging_is_an_exponential_average_of_the_models() -> None:
    state = fresh()
    models = []
    for result in train(Fake(), job(), Accountant(budgets()), plan(4, 0.6), state):
        models.append(state.weights.copy())
        expected = models[0]
        for model in models[1:]:
            expected = 0.6 * expected + 0.4 * model
        assert state.averaged == pytest.approx(expected)
        assert result.averaged is not None
        assert result.averaged.accuracy == pytest.approx(float(expected[0]))
    assert not np.array_equal(state.averaged, state.weights)


def test_without_averaging_the_model_itself_is_released() -> None:
    state = fresh()
    for result in train(Fake(), job(), Accountant(budgets()), plan(2), state):
        assert result.averaged is None
        assert np.array_equal(state.averaged, state.weights)
