"""Shards trained side by side: the same updates as one after the other, for any model."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from noisemarket.federated.models import flat_model
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.flat_model import FlatModel
from noisemarket.federated.models.torch_model import TorchModel, TorchRecords
from noisemarket.federated.protections import Sharded, UploadTask
from noisemarket.privacy.noise import SimulatedNoise, rounding_reach

pytestmark = pytest.mark.training

SIDE = 18
Shards = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Mixed(nn.Module):
    """Layers with and without bias, a shared one, a norm, a frozen one and a free parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 4)
        self.frozen = nn.Conv2d(4, 4, 1)
        self.frozen.requires_grad_(False)
        self.inner = nn.Linear(SIDE, SIDE)
        self.scale = nn.Parameter(torch.ones(SIDE))
        self.outer = nn.Linear(4 * SIDE * SIDE, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.frozen(torch.tanh(self.norm(self.conv(images))))
        seen = self.inner(self.inner(seen)) * self.scale  # twice the same layer
        out: torch.Tensor = self.outer(seen.flatten(1))
        return out


class Curious(nn.Module):
    """Goes one way or another by what it sees, which cannot be done for many at once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SIDE * SIDE, 5), nn.Linear(SIDE * SIDE, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1)
        if flat.mean() > 0:
            return self.first(flat)  # type: ignore[no-any-return]
        return self.second(flat)  # type: ignore[no-any-return]


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(SIDE * SIDE, 5))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "pool": lambda: CNN((3, 4), 6, 5, SIDE),
    "stride": lambda: CNN((3, 4), 6, 5, SIDE, downsampling="stride"),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 5)),
    "mixed": Mixed,
}


def flat(make: Callable[[], nn.Module]) -> FlatModel:
    torch.manual_seed(3)
    return FlatModel(make())


def dealt(sizes: list[int], seed: int = 0) -> Shards:
    made = torch.Generator().manual_seed(seed)
    out = []
    for size in sizes:
        images = torch.randn(size, 1, SIDE, SIDE, generator=made)
        images = images.contiguous(memory_format=torch.channels_last)
        out.append((images, torch.randint(0, 5, (size,), generator=made)))
    return out


def rows(updates: object) -> np.ndarray:
    return torch.cat(list(updates)).numpy()  # type: ignore[call-overload]


def in_order(made: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of the one in the order of the other, by which is nearest."""
    apart = ((made[:, None] - wanted[None]) ** 2).sum(2)
    places = apart.argmin(0)
    assert sorted(places) == list(range(len(wanted)))
    return made[places]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sizes", [[4] * 6, [5, 4, 5, 4, 4, 1], [3], [2, 1, 7]])
def test_the_same_as_one_after_the_other(name: str, sizes: list[int]) -> None:
    model, shards = flat(MODELS[name]), dealt(sizes)
    start = model.weights.clone()
    wanted = rows(model.sequential_updates(start, shards, 3, 0.1))
    made = rows(model.shard_updates(start, shards, 3, 0.1))
    assert not model._single_shards
    assert made.shape == wanted.shape == (len(sizes), len(model))
    assert np.abs(wanted).max() > 1e-3
    np.testing.assert_allclose(in_order(made, wanted), wanted, atol=2e-6, rtol=1e-4)


def test_the_model_is_left_as_it_was_side_by_side() -> None:
    model, shards = flat(MODELS["stride"]), dealt([4] * 3)
    start = model.weights.clone() + 0.1
    before = model.weights.clone()
    list(model.shard_updates(start, shards, 2, 0.1))
    assert torch.equal(model.weights, before)


def test_few_at_a_time_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory bounds how many are trained at once."""
    model, shards = flat(MODELS["stride"]), dealt([4] * 7 + [3] * 2)
    start = model.weights.clone()
    wanted = rows(model.shard_updates(start, shards, 2, 0.1))
    monkeypatch.setattr(flat_model, "AT_ONCE", 3 * len(model))
    groups = list(model.shard_updates(start, shards, 2, 0.1))
    assert [len(group) for group in groups] == [3, 3, 1, 2]
    np.testing.assert_allclose(rows(groups), wanted, atol=1e-6)


def test_a_model_that_cannot_is_trained_one_by_one() -> None:
    model, shards = flat(Curious), dealt([4] * 4)
    start = model.weights.clone()
    with pytest.raises(RuntimeError):
        model.batched_updates(start, shards[0][0][None], shards[0][1][None], 1, 0.1)
    made = rows(model.shard_updates(start, shards, 2, 0.1))
    assert model._single_shards
    wanted = rows(model.sequential_updates(start, shards, 2, 0.1))
    np.testing.assert_array_equal(made, wanted)
    again = rows(model.shard_updates(start, shards, 2, 0.1))  # known by now
    np.testing.assert_array_equal(again, wanted)


def test_a_model_that_draws_draws_for_each_shard() -> None:
    model = flat(dropping)
    one = dealt([4])[0]
    start = model.weights.clone()
    torch.manual_seed(1)
    made = rows(model.shard_updates(start, [one] * 3, 1, 0.1))
    assert len(made) == 3
    assert np.isfinite(made).all()
    assert len({row.tobytes() for row in made}) == 3  # equal records, other units dropped
    torch.manual_seed(1)
    np.testing.assert_array_equal(rows(model.shard_updates(start, [one] * 3, 1, 0.1)), made)


def test_the_same_bits_again() -> None:
    shards = dealt([5, 4, 5, 4])
    made = []
    for _ in range(2):
        model = flat(MODELS["pool"])
        made.append(rows(model.shard_updates(model.weights.clone(), shards, 2, 0.1)).tobytes())
    assert made[0] == made[1]


def sharded(model: TorchModel, records: TorchRecords, protection: Sharded) -> np.ndarray:
    start, rng = model.first_weights(), np.random.default_rng(1)
    task = UploadTask(model, start, records, 0.0, SimulatedNoise(1), rng)
    return protection.upload(task).astype(np.float64)


def whole(make: Callable[[], nn.Module]) -> TorchModel:
    torch.manual_seed(3)
    return TorchModel(make())


@pytest.mark.parametrize("name", ["pool", "stride", "mixed"])
@pytest.mark.parametrize("bad", [1e4, 1e30, math.inf, math.nan])
def test_no_record_breaks_the_bound(name: str, bad: float) -> None:
    """Whatever one record is, its shard moves the upload by no more than 2 clip / shards."""
    model, protection = whole(MODELS[name]), Sharded(shards=5, clip=0.5, steps=2, rate=1.0)
    images, labels = dealt([23])[0]  # shards of five and of four
    here = sharded(model, TorchRecords(images, labels), protection)
    bound = 2 * 0.5 / 5 + rounding_reach(len(model))
    assert np.linalg.norm(here) <= 0.5 + rounding_reach(len(model))
    for place in (0, 22):
        other = images.clone()
        other[place] = bad
        there = sharded(model, TorchRecords(other, labels), protection)
        assert np.isfinite(there).all()
        assert 0 < np.linalg.norm(there - here) <= bound


def test_more_shards_than_records() -> None:
    model, protection = whole(MODELS["stride"]), Sharded(shards=64, clip=1.0, steps=2, rate=0.5)
    images, labels = dealt([10])[0]
    made = sharded(model, TorchRecords(images, labels), protection)
    assert 0 < np.linalg.norm(made) <= 10 / 64 + rounding_reach(len(model))
