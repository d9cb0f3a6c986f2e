"""What an owner uploads: the plain update without noise, and bounds that no record can break."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from noisemarket.errors import BadInput
from noisemarket.federated import data
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.linear import LinearModel
from noisemarket.federated.models.model import Model
from noisemarket.federated.models.torch_model import TorchModel
from noisemarket.federated.protections import (
    DPSGD,
    PROTECTIONS,
    Paper,
    PerRecord,
    Protection,
    Sharded,
    UploadTask,
    dp_sgd,
    paper,
    sharded,
)
from noisemarket.privacy.noise import GRID, NoiseSource, SecureNoise, SimulatedNoise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours

WIDTH = 36
HUGE = float(np.finfo(np.float32).max)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():  # type: ignore[no-untyped-def]
    """As in a worker; threads only slow so small a model down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Held:
    """An owner's records, for whatever model."""

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def module(bias: bool) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 4, bias=bias))


MODELS: dict[str, Callable[[], Model]] = {
    "torch": lambda: TorchModel(module(bias=True)),
    "linear": lambda: LinearModel(4, WIDTH),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


def test_no_coordinate_is_so_large_that_it_goes_out_without_noise() -> None:
    """A curator may choose steps so long that one record moves the model beyond all bounds."""
    model, sizes = LinearModel(4, WIDTH), np.full((20, WIDTH), 1 / 6, np.float32)
    records = model.records(sizes, np.arange(20) % 4)
    for made in (
        DPSGD(batch=10, rate=1e9), Sharded(clip=2.0**20, rate=1e9),
        PerRecord(clip=2.0**20, rate=1e9), DPSGD(batch=10, rate=1e300),
    ):  # fmt: skip
        uploads = [
            made.upload(UploadTask(model, np.ones(len(model), np.float32), records, 0.1,
                                   SimulatedNoise(seed), np.random.SeedSequence(1)))
            for seed in (1, 2)
        ]  # fmt: skip
        assert all(np.isfinite(one).all() for one in uploads)
        assert np.mean(uploads[0] != uploads[1]) > 0.5


def start_of(model: Model) -> np.ndarray:
    """Somewhere else than at zero, where a linear model begins."""
    return model.first_weights() + np.random.default_rng(4).normal(0, 0.1, len(model)).astype("f4")


def records(count: int = 40, seed: int = 0) -> Held:
    rng = np.random.default_rng(seed)
    return Held(rng.normal(size=(count, WIDTH)).astype("f4"), rng.integers(0, 4, count))


def replaced(old: Held, index: int, values: np.ndarray, label: int) -> Held:
    inputs, labels = old.inputs.copy(), old.labels.copy()
    inputs[index], labels[index] = values, label
    return Held(inputs, labels)


def upload(
    model: Model,
    protection: Protection,
    held: Held,
    sigma: float = 0.0,
    seed: int = 1,
    key: int = 0,
    noise: NoiseSource | None = None,
    order: int = 9,
) -> np.ndarray:
    start = start_of(model)
    kept = start.copy()
    own, seeds = model.records(held.inputs, held.labels), np.random.SeedSequence(order)
    source = noise or SimulatedNoise(seed).stream(key)
    made = protection.upload(UploadTask(model, start, own, sigma, source, seeds))
    assert made.dtype == np.float32
    assert made.shape == (len(model),)
    assert np.array_equal(start, kept), "the global model is left alone"
    return made.astype(np.float64)


def one_pixel(value: float) -> np.ndarray:
    values = np.zeros(WIDTH, "f4")
    values[0] = value
    return values


ADVERSARIAL = {
    "large": np.full(WIDTH, 1e4, "f4"),
    "huge": np.full(WIDTH, 1e30, "f4"),
    "largest pixel": one_pixel(HUGE),
    "lowest pixel": one_pixel(-HUGE),
    "all largest": np.full(WIDTH, HUGE, "f4"),
    "infinite": np.full(WIDTH, math.inf, "f4"),
    "NaN": one_pixel(math.nan),
    "zero": np.zeros(WIDTH, "f4"),
}


def test_names() -> None:
    assert {name: kind.name for name, kind in PROTECTIONS.items()} == {
        name: name for name in ("per_record", "sharded", "dp_sgd", "paper")
    }


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("bias", [True, False], ids=["torch", "linear"])
def test_paper_without_noise_is_plain_local_sgd(epochs: int, bias: bool) -> None:
    model: Model = MODELS["torch" if bias else "linear"]()
    held, start, rng = records(), start_of(model), np.random.default_rng(9)
    plain = module(bias)
    nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), plain.parameters())
    steps = torch.optim.SGD(plain.parameters(), lr=0.2)
    for _ in range(epochs):
        order = rng.permutation(len(held))
        for at in range(0, len(held), 16):
            some = order[at : at + 16]
            steps.zero_grad()
            inputs, labels = (
                torch.from_numpy(held.inputs[some]),
                torch.from_numpy(held.labels[some]),
            )
            nn.functional.cross_entropy(plain(inputs), labels).backward()
            steps.step()
    expected = nn.utils.parameters_to_vector(plain.parameters()).detach().numpy() - start
    made = upload(model, Paper(16, 0.2, epochs), held)
    assert np.abs(made - expected).max() < 1e-6 + GRID


class TestSharded:
    protection = Sharded(records_per_shard=5, clip=0.5, steps=2, rate=0.3)

    def test_without_clipping_it_is_the_mean_of_the_shards(self, model: Model) -> None:
        protection, held = Sharded(records_per_shard=3, clip=1e6, steps=3, rate=0.3), records(10)
        mean, start = np.zeros(len(model)), start_of(model)
        for shard in range(4):
            own, weights = model.records(held.inputs[shard::4], held.labels[shard::4]), start.copy()
            for _ in range(3):
                model.descend(weights, own, 0.3)
            mean += (weights - start) / 4
        assert np.abs(upload(model, protection, held) - mean).max() < 1e-6

    @pytest.mark.parametrize("name", ADVERSARIAL)
    @pytest.mark.parametrize("rate", [0.3, 1.0])
    def test_one_shard_alone_stays_within_its_share(
        self, model: Model, name: str, rate: float
    ) -> None:
        """A single record in a shard of its own."""
        for steps in (1, 3):
            protection = Sharded(clip=0.5, steps=steps, rate=rate)
            alone = replaced(records(1), 0, ADVERSARIAL[name], 2)
            made = upload(model, protection, alone)
            assert np.linalg.norm(made) <= 0.5 + rounding_reach(made.size) / 2

    def test_two_opposite_records_use_up_the_bound(self, model: Model) -> None:
        """The sensitivity is no larger than it has to be."""
        held, protection = records(8), Sharded(records_per_shard=1, clip=0.01, steps=1, rate=0.3)
        image = np.ones(WIDTH, "f4")
        ends = [upload(model, protection, replaced(held, 0, way * image, 1)) for way in (1, -1)]
        assert np.linalg.norm(ends[0] - ends[1]) > 0.8 * 2 * 0.01 / 8

    def test_a_record_moves_its_own_shard_only(self, model: Model) -> None:
        held, protection = records(), Sharded(records_per_shard=5, clip=1e-3, steps=1, rate=0.3)
        before = upload(model, protection, held)
        after = upload(model, protection, replaced(held, 3, np.ones(WIDTH, "f4"), 0))
        assert 0 < np.linalg.norm(after - before) <= 2e-3 / 8 + rounding_reach(before.size)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_shard_that_is_not_finite_counts_for_nothing(
        self, model: Model, value: float
    ) -> None:
        """It stays in the number of shards: else one record would move the others' share too."""
        spoilt = replaced(records(8), 7, np.full(WIDTH, value, "f4"), 0)
        other = Held(spoilt.inputs[::2], spoilt.labels[::2])  # the one shard of two without it
        expected = upload(model, self.protection, other) / 2
        assert expected.any()
        assert np.abs(upload(model, self.protection, spoilt) - expected).max() < 1e-6
        assert not upload(model, Sharded(8, 0.5, 2, 0.3), spoilt).any()

    def test_no_records_are_noise_alone(self, model: Model) -> None:
        assert not upload(model, self.protection, records(0)).any()
        assert upload(model, self.protection, records(0), 0.5).std() == pytest.approx(0.5, rel=0.3)

    def test_the_batch_order_does_not_matter(self, model: Model) -> None:
        made = [upload(model, self.protection, records(), order=order) for order in (1, 2)]
        assert np.array_equal(*made)

    def test_a_single_shard_hides_the_whole_owner(self) -> None:
        assert Sharded(records_per_shard=20).whole_owner(20)
        assert not Sharded(records_per_shard=20).whole_owner(21)
        for protection in (PerRecord(), Paper(), DPSGD()):
            assert not protection.whole_owner(1)


class TestDPSGD:
    protection = DPSGD(batch=16, rate=0.3, clip=0.7)

    def test_a_part_batch_keeps_the_denominator(self, model: Model) -> None:
        made = upload(model, self.protection, records(3))
        assert np.linalg.norm(made) <= 0.3 * 0.7 * 3 / 16 + rounding_reach(made.size)

    def test_records_beyond_the_last_full_batch_sit_out(self, model: Model) -> None:
        held = records(20)
        order = np.random.default_rng(9).permutation(20)
        changed = replaced(held, int(order[-1]), np.ones(WIDTH, "f4"), 0)
        assert np.array_equal(
            upload(model, self.protection, held), upload(model, self.protection, changed)
        )

    def test_steps_are_those_of_clipped_descent(self, model: Model) -> None:
        held, weights = records(32), start_of(model)
        order = np.random.default_rng(9).permutation(32)
        for some in (order[:16], order[16:]):
            own = model.records(held.inputs[some], held.labels[some])
            weights -= np.float32(0.3 / 16) * model.clipped_gradient(weights, own, 0.7)
        expected = weights - start_of(model)
        assert np.abs(upload(model, self.protection, held) - expected).max() < 1e-6


class TestSensitivities:
    @pytest.mark.parametrize(("relation", "reach"), [("replace_one", 2.0), ("zero_out", 1.0)])
    def test_formulas(self, relation: str, reach: float) -> None:
        neighbours, extra = Neighbours(relation), rounding_reach(1000)
        sharded = Sharded(records_per_shard=32, clip=3.0).sensitivity(1000, 500, neighbours)
        assert sharded == pytest.approx(reach * 3.0 / 16 + extra, rel=1e-12)
        dp_sgd = DPSGD(batch=50, rate=0.1, clip=3.0)
        for count, steps in ((500, 10), (549, 10), (50, 1), (7, 1)):
            summing = 2 * 0.1 * 3.0 * 54 * 2**-24 / (1 - 54 * 2**-24)
            expected = (reach * 0.1 * 3.0 / 50 + extra + summing) * math.sqrt(steps)
            assert dp_sgd.sensitivity(1000, count, neighbours) == pytest.approx(expected, rel=1e-12)
        assert Paper().sensitivity(1000, 500, neighbours) == math.inf


def test_neighbours_in_words() -> None:
    replace, zero = Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT
    said = {
        Sharded().protects(replace, 600),
        Sharded().protects(zero, 600),
        DPSGD().protects(zero, 600),
        Sharded().protects(replace, 10),
        Sharded().protects(zero, 10),
    }
    assert len(said) == 5
    assert DPSGD().protects(replace, 600) == Sharded().protects(replace, 600)
    assert "its shard" in Sharded().protects(zero, 600)
    assert all("one record" in Sharded(1).protects(n, 1) for n in Neighbours)
    assert all("whole data" in Sharded().protects(n, 10) for n in Neighbours)


def test_sharded_bounds_a_convolutional_model_too() -> None:
    torch.manual_seed(1)
    model = TorchModel(CNN((2, 3), 8))
    inputs = np.random.default_rng(1).normal(size=(12, 1, 28, 28)).astype("f4")
    protection = Sharded(records_per_shard=3, clip=0.1, steps=2, rate=0.5)
    ends = []
    for value in (0.0, 1e5, -1e20):
        inputs[5] = value
        ends.append(upload(model, protection, Held(inputs, np.arange(12) % 10)))
    reach = protection.sensitivity(len(model), 12, Neighbours.REPLACE_ONE)
    for end in ends[1:]:
        assert np.linalg.norm(end - ends[0]) <= reach


class TestSettings:
    KEYS = {  # noqa: RUF012
        "privacy.clip": 0.5, "privacy.records_per_shard": 8, "shard_steps": 3,
        "privacy.shard_rate": 0.2, "training.batch": 16, "local_rate": 0.1,
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("paper", Paper(16, 0.1)),
            ("sharded", Sharded(8, 0.5, 3, 0.2)),
            ("dp_sgd", DPSGD(16, 0.1, 0.5)),
        ],
    )
    def test_are_read_from_a_scenario(self, name: str, expected: Protection) -> None:
        assert PROTECTIONS.find(name).from_scenario(self.KEYS, {}) == expected

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"clip": 2.0}, "privacy.settings.clip is 2.0: give it as privacy.clip instead"),
            ({"other": 1}, "privacy.settings.other 1 is not a setting of sharded, which has"),
        ],
    )
    def test_of_a_table_must_be_its_own(self, settings: dict[str, object], words: str) -> None:
        with pytest.raises(BadInput, match=words):
            Sharded.from_scenario(self.KEYS, settings)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Sharded(records_per_shard=0),
            lambda: Sharded(records_per_shard=2.5),  # type: ignore[arg-type]
            lambda: Sharded(steps=True),
            lambda: DPSGD(batch=-1),
            lambda: DPSGD(clip=math.nan),
            lambda: Paper(rate=0.0),
            lambda: Paper(epochs=10**400),
            lambda: Sharded(clip=math.inf),
        ],
    )
    def test_must_be_positive(self, make: Callable[[], Protection]) -> None:
        with pytest.raises(BadInput, match=r"give a (positive|whole) number"):
            make()

    @pytest.mark.parametrize("step", [3.0, 1e300, math.nan, 0.0])
    def test_an_update_that_others_trained_is_cut_as_a_whole(self, step: float) -> None:
        made = Sharded(clip=0.5).protect_whole(np.full(100, step), 0.0, SecureNoise())
        assert np.linalg.norm(made) == pytest.approx(0.5 if step == 3.0 else 0.0, abs=1e-6)


@pytest.mark.parametrize("module", [data, dp_sgd, paper, sharded])
def test_examples_of_docstrings(module: ModuleType) -> None:
    ran = doctest.testmod(module)
    assert ran.attempted > 0
    assert ran.failed == 0
