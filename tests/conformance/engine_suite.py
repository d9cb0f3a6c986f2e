"""What every engine must hold: the bits of the embedded one, whoever is away or sends rubbish.

A test module gets the whole suite with one class::

    class TestMine(EngineConformance):
        @pytest.fixture
        def open_engine(self) -> Open:
            return lambda order: MyEngine(order.job, ...)

Noise is simulated, so that it can be compared; one test takes secure noise. Owners are uneven, the
smallest has fewer records than a batch, and one adds no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cheats import Fault, FaultyEngine

from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Engine, Job, Score, Weights
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import DPSGD, Paper, PerRecord, Protection, Sharded, Upload
from noisemarket.federated.rounds import Checkpoint, RoundResult, State, TrainingPlan, train
from noisemarket.market.orders import Order
from noisemarket.market.training import SerialEngine
from noisemarket.privacy.accountant import Accountant, PrivacyBudget
from noisemarket.privacy.zcdp import Neighbours

SIZES = (5, 60, 30, 45)
SIGMA = (0.1, 0.2, 0.0, 0.3)
EVERYBODY = [0, 1, 2, 3]
PROTECTIONS: dict[str, Protection] = {
    "paper": Paper(16, 0.1, 1),
    "per_record": PerRecord(clip=0.5, rate=2.0),
    "sharded": Sharded(records_per_shard=5, clip=0.5, steps=2, rate=0.2),
    "dp_sgd": DPSGD(batch=10, rate=0.1, clip=1.0),
}
DIVERGING = "diverging"
"""An order whose owners train with a step size that no update survives."""

KEY = bytes(range(32))
FIRST = 1
"""The number of the first round."""
MODELS: dict[str, ModelMaker] = {
    "cnn": TorchMaker(partial(CNN, (2, 3), 8, 4, 16)),
    "linear": LinearMaker(4, 256),
}
CASES = [(model, protection) for model in MODELS for protection in PROTECTIONS]

Open = Callable[[Order], Engine]
Uploads = dict[int, Upload | None]


@cache
def data(model: str) -> Dataset:
    """Small data for a model, always the same."""
    rng = np.random.default_rng(2)
    labels, of_test = np.arange(140) % 4, np.arange(1200) % 4  # more than are tested at once
    if model != "cnn":  # features of length 1: an owner declines longer ones
        vectors = (rng.standard_normal((count, 256)) for count in (140, 1200))
        return Dataset.of_features(next(vectors), labels, next(vectors), of_test)
    images = (rng.integers(0, 256, (count, 16, 16), dtype=np.uint8) for count in (140, 1200))
    return Dataset.of(next(images), labels, next(images), of_test)


@cache
def make_order(protection: str, noise: str = "simulated", model: str = "linear") -> Order:
    """A job of four owners and three rounds; linear, since a worker needs seconds to load torch."""
    parts = np.split(np.random.default_rng(3).permutation(140), np.cumsum(SIZES)[:-1])
    partition = Partition(tuple(np.sort(part) for part in parts))
    diverging = Paper(16, 1e30, 1)
    made, sigma = PROTECTIONS.get(protection, diverging), np.array(SIGMA)
    key = KEY if noise == "keyed" else None
    kind = "simulated" if noise == "simulated" else "secure"
    job = Job(data(model), partition, MODELS[model], made, sigma, 7, kind, key)  # type: ignore[arg-type]
    budgets = tuple(
        PrivacyBudget(owner, made.name, SIGMA[owner], np.inf, Neighbours.REPLACE_ONE,
                      simulated=noise == "simulated")
        for owner in EVERYBODY
    )  # fmt: skip
    return Order(
        job,
        TrainingPlan(3, np.array([1.0, 2.0, 1.0, 3.0])),
        budgets,
        f"{model}-{protection}-{noise}",
    )


@cache
def expected(
    protection: str, model: str = "linear"
) -> tuple[Weights, list[Uploads], Uploads, Score]:
    """What the engine in this process gives: first model, two rounds, some owners, score."""
    with SerialEngine(make_order(protection, model=model).job) as engine:
        return _seen(engine)


def _seen(engine: Engine) -> tuple[Weights, list[Uploads], Uploads, Score]:
    first = engine.first_weights()
    rounds = [engine.train(number, first, EVERYBODY) for number in (1, 2)]
    return first, rounds, engine.train(3, first, [3, 0]), engine.score(first)


def troubled(engine: Engine, order: Order, state: State, account: Accountant, **more: Any) -> None:
    """A job with owners that are away, that send nothing or rubbish, and that are refused."""
    faults = [Fault(1, "absent", first=1, last=1), Fault(3, "nan", first=2, last=2),
              Fault(0, "short", first=3)]  # fmt: skip

    def present(number: int) -> list[int]:
        return [3, 2, 1] if number == 1 else EVERYBODY  # in no order

    def inspect(number: int, weights: Weights, _: Mapping[int, Upload]) -> dict[int, str]:
        assert weights.shape == engine.first_weights().shape
        return {2: "disliked"} if number == 2 else {}

    faulty = FaultyEngine(engine, faults, order.job)
    for _ in train(faulty, order.job, account, order.plan, state, inspect=inspect,
                   present=present, **more):  # fmt: skip
        pass


@cache
def troubled_here() -> tuple[list[RoundResult], Weights]:
    """What the troubled job gives in this process."""
    order = make_order("sharded")
    with SerialEngine(order.job) as engine:
        state = State.first(engine.first_weights())
        troubled(engine, order, state, Accountant(order.budgets))
    return state.results, state.weights


def timeless(results: list[RoundResult]) -> list[dict[str, Any]]:
    """Results without the time that they took."""
    return [asdict(replace(result, seconds=0.0)) for result in results]


def same(ours: Uploads, theirs: Uploads) -> bool:
    """Whether all uploads are alike to the bit."""
    assert set(ours) == set(theirs)
    return all(np.array_equal(_there(ours[owner]), _there(theirs[owner])) for owner in ours)


def differ(ours: Upload | None, theirs: Upload | None) -> bool:
    """Whether two uploads differ nearly everywhere."""
    return bool((_there(ours) != _there(theirs)).mean() > 0.9)


def _there(upload: Upload | None) -> Upload:
    assert upload is not None
    return upload


class EngineConformance:
    """The suite. ``open_engine`` makes an engine for an order, with all its owners there."""

    @pytest.fixture
    def open_engine(self) -> Open:
        raise NotImplementedError

    @pytest.mark.parametrize(("model", "protection"), CASES)
    def test_the_same_bits_whatever_the_engine(
        self, open_engine: Open, model: str, protection: str
    ) -> None:
        with open_engine(make_order(protection, model=model)) as engine:
            first, rounds, some, score = _seen(engine)
        known = expected(protection, model)
        assert np.array_equal(first, known[0])
        assert all(same(ours, theirs) for ours, theirs in zip(rounds, known[1], strict=True))
        assert set(some) == {0, 3}
        assert same(some, known[2])
        assert score == known[3]
        assert 0 <= score.accuracy <= 100
        assert np.isfinite(score.loss)
        for owner in (0, 1, 3):
            assert differ(rounds[0][owner], rounds[1][owner])
        assert differ(rounds[0][0], rounds[0][1])

    def test_secure_noise_is_another_every_time(self, open_engine: Open) -> None:
        known = expected("sharded")[1]
        with open_engine(make_order("sharded", "secure")) as engine:
            made = [engine.train(number, engine.first_weights(), EVERYBODY) for number in (1, 2)]
        for uploads in (*made, *known):  # of who adds no noise, and trains on all its records
            assert np.array_equal(_there(uploads[2]), _there(known[0][2]))
        for owner in (0, 1, 3):
            for ours, theirs in combinations([uploads[owner] for uploads in (*made, *known)], 2):
                assert differ(ours, theirs)

    def test_what_it_gives_is_the_callers_to_keep(self, open_engine: Open) -> None:
        engine = open_engine(make_order("sharded"))
        first = engine.first_weights()
        assert engine.train(1, first, []) == {}
        upload = _there(engine.train(1, first, [1])[1])
        kept = upload.copy()
        engine.train(2, first, [1])
        engine.first_weights()[:] = 9
        assert np.array_equal(engine.first_weights(), first)
        engine.close()
        engine.close()
        assert np.array_equal(upload, kept)

    def test_a_job_with_troubles_comes_to_the_same_at_once_or_in_two_goes(
        self, open_engine: Open, tmp_path: Path
    ) -> None:
        order = make_order("sharded")
        short = replace(order, plan=replace(order.plan, rounds=1))
        whole, parts = Accountant(order.budgets), Accountant(order.budgets)
        checkpoint = Checkpoint(tmp_path / "checkpoint.npz", order.fingerprint)
        with open_engine(order) as engine:
            at_once = State.first(engine.first_weights())
            troubled(engine, order, at_once, whole)
            troubled(engine, short, order.start(), parts, checkpoint=checkpoint)
        in_two = checkpoint.load()
        assert in_two is not None
        assert in_two.rounds_done == 1
        with open_engine(order) as engine:
            troubled(engine, order, in_two, parts, checkpoint=checkpoint)
        results, weights = troubled_here()
        assert [result.delivered for result in results] == [(2, 3), (0, 1), (1, 2, 3)]
        assert [dict(result.refused) for result in results] == [
            {1: "missing"}, {2: "disliked", 3: "not finite"}, {0: "wrong shape"}
        ]  # fmt: skip
        for state, account in ((at_once, whole), (in_two, parts)):
            assert timeless(state.results) == timeless(results)
            assert np.array_equal(state.weights, weights)
            charged = [account.statement(owner).releases for owner in EVERYBODY]
            assert charged == [2, 3, 3, 3]  # who was not there was not charged

    def test_an_update_that_diverges_is_refused_as_not_finite(self, open_engine: Open) -> None:
        """It is not missing, which would be paid for in part, and it moves nothing."""
        order = make_order(DIVERGING)
        account = Accountant(order.budgets)
        with open_engine(order) as engine:
            state = State.first(engine.first_weights())
            first = state.weights.copy()
            rounds = list(train(engine, order.job, account, order.plan, state))
        everybody = dict.fromkeys(EVERYBODY, "not finite")
        assert [dict(result.refused) for result in rounds] == [everybody] * 3
        assert np.array_equal(state.weights, first)
        assert [account.statement(owner).releases for owner in EVERYBODY] == [3] * 4

    def test_asked_again_from_the_same_model_it_gives_the_same_bits(
        self, open_engine: Open
    ) -> None:
        """Also with secret noise, where the job has a key for it: a release is made once."""
        with open_engine(make_order("sharded", "keyed")) as engine:
            first = engine.first_weights()
            made = engine.train(FIRST, first, EVERYBODY)
            assert same(engine.train(FIRST, first, EVERYBODY), made)
            later = engine.train(FIRST + 1, first, EVERYBODY)
            moved = engine.train(FIRST + 1, first + 1e-3, EVERYBODY)
        for owner in (0, 1, 3):
            assert differ(made[owner], later[owner])
            assert differ(later[owner], moved[owner])

    def test_every_release_is_charged_before_it_is_made(self, open_engine: Open) -> None:
        order = make_order("sharded")
        account = Accountant(order.budgets)
        with open_engine(order) as engine:
            state = State.first(engine.first_weights())
            asked = Charged(engine, account, order.job)
            list(train(asked, order.job, account, order.plan, state))
        assert asked.rounds == 3


class Charged(FaultyEngine):
    """An engine without faults that trains nobody who has not paid for it."""

    def __init__(self, engine: Engine, account: Accountant, job: Job) -> None:
        super().__init__(engine, [], job)
        self._account, self.rounds = account, 0

    def train(self, round_number: int, weights: Weights, owners: Sequence[int]) -> Uploads:
        charged = {(charge.owner, charge.round) for charge in self._account.charges}
        assert {(owner, round_number) for owner in owners} <= charged
        self.rounds += 1
        return super().train(round_number, weights, owners)
