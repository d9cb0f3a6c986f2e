"""The state of a job after each round, on disk: whole or refused."""

from __future__ import annotations

import io
import json
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.federated.no_engine import OWNERS, SIZE, Fake, budgets, fresh, job, plan
from tests.little_room import little_room

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.engine import Score
from noisemarket.federated.protections import Upload
from noisemarket.federated.rounds import Checkpoint, RoundResult, State, read_result, train
from noisemarket.files import load_arrays, save_arrays
from noisemarket.privacy.accountant import Accountant


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
