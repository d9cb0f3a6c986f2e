"""The rounds: charged before they are trained, screened, aggregated, and resumable."""

from __future__ import annotations

import io
import json
import sys
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.little_room import little_room

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.aggregation import aggregate, screen
from noisemarket.federated.checkpoint import Checkpoint, RoundResult, State, read_result
from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Sharded, Upload
from noisemarket.federated.rounds import TrainingPlan, train
from noisemarket.files import load_arrays, save_arrays
from noisemarket.privacy.accountant import Accountant
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.privacy.statement import PrivacyBudget

OWNERS, SIZE = 4, 6


def job(noise: str = "simulated") -> Job:
    images, labels = np.zeros((8, 28, 28), np.uint8), np.arange(8) % 2
    data = Dataset.of(images, labels, images, labels)
    parts = Partition(tuple(np.split(np.arange(8), OWNERS)), np.full((OWNERS, 2), 0.5))
    return Job(data, parts, TorchMaker(CNN), Sharded(), np.full(OWNERS, 0.5), 3, noise)  # type: ignore[arg-type]


def budgets(caps: Sequence[float] = (np.inf,) * OWNERS) -> list[PrivacyBudget]:
    return [PrivacyBudget(i, "sharded", 0.5, 0.1 * (i + 1), rho_cap=cap)
            for i, cap in enumerate(caps)]  # fmt: skip


class Fake(Engine):
    """Moves every owner by its own number plus the rounds before; records what it was asked."""

    def __init__(self, accountant: Accountant | None = None, bad: object = None) -> None:
        self.asked: list[tuple[int, list[int]]] = []
        self.paid: list[int] = []
        self.accountant, self.bad = accountant, bad

    @property
    def dimension(self) -> int:
        return SIZE

    def first_weights(self) -> Weights:
        return np.zeros(SIZE)

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        self.asked.append((round_number, list(owners)))
        if self.accountant is not None:
            self.paid.append(len(self.accountant.charges))
        made: dict[int, Upload | None] = {
            owner: np.full(SIZE, owner + round_number - 1, np.float32) for owner in owners
        }
        if self.bad is not None:
            made[1] = self.bad  # type: ignore[assignment]
        return made

    def score(self, weights: Weights) -> Score:
        return Score(float(weights[0]), 0.0)

    def close(self) -> None:
        pass


def fresh() -> State:
    return State(np.zeros(SIZE), np.zeros(SIZE))


def plan(rounds: int = 3, averaging: float = 0.0) -> TrainingPlan:
    return TrainingPlan(rounds, np.ones(OWNERS), averaging)


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
                pytest.raises(BadInput, match=rf"^journal = {path}: lacks the charges of round"),
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


class TestCheckpoint:
    def saved(self, folder: Path) -> Checkpoint:
        made = Checkpoint(folder / "checkpoint.npz", "abc")
        weights = np.random.default_rng(1).normal(size=SIZE)
        done = [RoundResult(number, Score(50.0, 1.0), None, 0.1, 0, ()) for number in (1, 2, 3)]
        made.save(State(weights, np.arange(float(SIZE)), done))
        return made

    def test_round_trip(self, tmp_path: Path) -> None:
        assert Checkpoint(tmp_path / "none.npz", "abc").load() is None
        state = self.saved(tmp_path).load()
        assert state is not None
        assert state.rounds_done == 3
        assert np.array_equal(state.weights, np.random.default_rng(1).normal(size=SIZE))
        assert np.array_equal(state.averaged, np.arange(float(SIZE)))
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.npz"]

    def test_it_keeps_what_the_caller_puts_in(self, tmp_path: Path) -> None:
        checkpoint, state = Checkpoint(tmp_path / "c.npz", "abc"), fresh()
        state.job = "a job"

        def inspect(number, weights, uploads):  # type: ignore[no-untyped-def]
            state.inspector = {"sums": [0.1, number], "who": "the market"}
            return {2: "no contract"}

        rounds = train(
            Fake(), job(), Accountant(budgets()), plan(3), state, checkpoint, inspect=inspect
        )
        results = [next(rounds), next(rounds)]
        loaded = checkpoint.load()
        assert loaded is not None
        assert (loaded.job, loaded.inspector) == (
            "a job",
            {"sums": [0.1, 2], "who": "the market"},
        )
        assert loaded.results == results

    def test_the_job_is_known_before_anything_is_charged(self, tmp_path: Path) -> None:
        class Broken(Fake):
            def train(self, *_: object) -> dict[int, Upload | None]:  # type: ignore[override]
                raise RuntimeError("gone")

        checkpoint, accountant = Checkpoint(tmp_path / "c.npz", "abc"), Accountant(budgets())
        with pytest.raises(RuntimeError, match="gone"):
            next(train(Broken(), job(), accountant, plan(1), fresh(), checkpoint))
        state = checkpoint.load()
        assert state is not None
        assert (state.rounds_done, state.results) == (0, [])
        with pytest.raises(BadInput, match="another scenario"):
            Checkpoint(tmp_path / "c.npz", "abd").load()

    @pytest.mark.parametrize("loss", [np.inf, np.nan, 1.5])
    def test_a_loss_that_is_not_finite_is_null(self, tmp_path: Path, loss: float) -> None:
        lost = Score(10.0, loss)
        result = RoundResult(1, lost, lost, 0.1, 2, ((3, "missing"),), (0, 1))
        line = json.dumps(result.to_dict(), allow_nan=False)
        known = loss if np.isfinite(loss) else np.inf
        assert json.loads(line)["averaged"]["loss"] == (loss if np.isfinite(loss) else None)
        assert read_result(json.loads(line)).score == Score(10.0, known)
        checkpoint, state = Checkpoint(tmp_path / "c.npz", "abc"), fresh()
        state.results = [result]
        checkpoint.save(state)
        loaded = checkpoint.load()
        assert loaded is not None
        assert loaded.results == [read_result(json.loads(line))]

    @pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
    def test_a_full_disk_is_one_sentence_and_leaves_the_one_before(self, tmp_path: Path) -> None:
        checkpoint = self.saved(tmp_path)
        with little_room(100), pytest.raises(NoisemarketError, match=r"npz cannot be written: Fil"):
            checkpoint.save(fresh())
        state = checkpoint.load()
        assert state is not None
        assert state.rounds_done == 3
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.npz"]
        checkpoint.save(fresh())  # there is room again

    def test_another_job(self, tmp_path: Path) -> None:
        path = self.saved(tmp_path).path
        with pytest.raises(BadInput, match="another scenario"):
            Checkpoint(path, "abd").load()

    @pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.7, 0.99])
    def test_truncated(self, tmp_path: Path, part: float) -> None:
        checkpoint = self.saved(tmp_path)
        content = checkpoint.path.read_bytes()
        checkpoint.path.write_bytes(content[: int(part * len(content))])
        with pytest.raises(BadInput, match="cannot be read"):
            checkpoint.load()

    @pytest.mark.parametrize("at", [60, 300, 700])
    def test_damaged(self, tmp_path: Path, at: int) -> None:
        """A flipped byte is refused, or it did not matter; never a traceback."""
        checkpoint = self.saved(tmp_path)
        content = bytearray(checkpoint.path.read_bytes())
        content[at] ^= 0xFF
        expected = checkpoint.load()
        checkpoint.path.write_bytes(content)
        try:
            state = checkpoint.load()
        except BadInput:
            return
        assert state is not None
        assert expected is not None
        assert np.array_equal(state.weights, expected.weights)
        assert np.array_equal(state.averaged, expected.averaged)

    def test_not_an_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "checkpoint.npz"
        for content in (b"hello", b"PK\x03\x04hello"):
            path.write_bytes(content)
            with pytest.raises(BadInput, match="cannot be read"):
                Checkpoint(path, "abc").load()

    def changed(self, folder: Path, **arrays: np.ndarray) -> Checkpoint:
        """A checkpoint in which some arrays are others, all else being as it was."""
        made = self.saved(folder)
        save_arrays(made.path, **(load_arrays(made.path) | arrays))
        return made

    @pytest.mark.parametrize("name", ["weights", "averaged", "velocity"])
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_weights_that_are_not_finite(self, name: str, bad: float, tmp_path: Path) -> None:
        made = self.changed(tmp_path, **{name: np.full(SIZE, bad)})
        with pytest.raises(BadInput, match=r"cannot be read \(its weights are not finite\)"):
            made.load()

    @pytest.mark.parametrize(
        "arrays",
        [
            {"weights": np.zeros(SIZE + 1)},
            {"weights": np.zeros((SIZE, 1))},
            {"averaged": np.zeros(SIZE - 1)},
            {"velocity": np.zeros(2)},
            {"weights": np.zeros(SIZE, np.int64)},
            {"weights": np.array(["x"] * SIZE)},
            {"weights": np.zeros(SIZE + 1), "averaged": np.zeros(SIZE + 1)},
        ],
        ids=lambda arrays: "-".join(arrays),
    )
    def test_weights_of_another_model(self, arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
        made = self.changed(tmp_path, **arrays)
        with pytest.raises(BadInput, match=r"not those of this model"):
            made.load(fresh())

    def test_a_compressed_bomb_takes_no_memory(self, tmp_path: Path) -> None:
        """A thousandth of what it would become; never what ``save`` writes."""
        made = self.saved(tmp_path)
        huge = np.zeros(20_000_000)
        save_arrays(made.path, compressed=True, **(load_arrays(made.path) | {"weights": huge}))
        assert made.path.stat().st_size < huge.nbytes / 100
        del huge
        tracemalloc.start()
        try:
            with pytest.raises(BadInput, match=r"cannot be read \(compressed\)"):
                made.load()
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()

    def test_a_header_that_promises_more_than_there_is(self, tmp_path: Path) -> None:
        made = self.saved(tmp_path)
        promised = io.BytesIO()
        header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
        np.lib.format.write_array_header_1_0(promised, header)
        with zipfile.ZipFile(made.path, "w") as archive:
            archive.writestr("weights.npy", promised.getvalue() + bytes(8 * SIZE))
        with pytest.raises(BadInput, match="not as long as its header says"):
            made.load()

    def test_going_on_ends_where_going_through_does(self, tmp_path: Path) -> None:
        whole = fresh()
        list(train(Fake(), job(), Accountant(budgets()), plan(5, 0.5), whole))
        accountant, checkpoint = Accountant(budgets()), Checkpoint(tmp_path / "c.npz", "x")
        rounds = train(Fake(), job(), accountant, plan(5, 0.5), fresh(), checkpoint)
        next(rounds)
        next(rounds)
        state = checkpoint.load()
        assert state is not None
        assert state.rounds_done == 2
        rest = list(train(Fake(), job(), accountant, plan(5, 0.5), state, checkpoint))
        assert [result.number for result in rest] == [3, 4, 5]
        assert np.array_equal(state.weights, whole.weights)
        assert np.array_equal(state.averaged, whole.averaged)
        assert len(accountant.charges) == 5 * OWNERS
