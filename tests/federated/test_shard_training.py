"""Shards trained side by side: the same updates as one after the other, for any model."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from noisemarket.federated.models import torch_model
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.torch_model import TorchModel, TorchRecords
from noisemarket.federated.protections import Sharded, UploadTask
from noisemarket.privacy.noise import SimulatedNoise, rounding_reach

pytestmark = pytest.mark.training

SIDE = 18


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


def made_of(make: Callable[[], nn.Module]) -> TorchModel:
    torch.manual_seed(3)
    return TorchModel(make())


def dealt(number: int, seed: int = 0) -> TorchRecords:
    made = torch.Generator().manual_seed(seed)
    images = torch.randn(number, 1, SIDE, SIDE, generator=made)
    images = images.contiguous(memory_format=torch.channels_last)
    return TorchRecords(images, torch.randint(0, 5, (number,), generator=made))


def one_by_one(
    model: TorchModel, records: TorchRecords, shards: int, steps: int, rate: float
) -> np.ndarray:
    """What each shard makes of the first weights, by steps on its records alone."""
    start, rows = model.first_weights(), []
    for shard in range(min(shards, len(records))):
        weights, own = start.copy(), records.take(np.arange(shard, len(records), shards))
        for _ in range(steps):
            model.descend(weights, own, rate)
        rows.append(weights - start)
    return np.stack(rows)


def updates(
    model: TorchModel, records: TorchRecords, shards: int, steps: int, rate: float
) -> np.ndarray:
    start = model.first_weights()
    return np.concatenate(list(model.shard_updates(start, records, shards, steps, rate)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("number", "shards"), [(24, 6), (23, 5), (3, 1), (3, 7)])
def test_the_same_as_one_after_the_other(name: str, number: int, shards: int) -> None:
    model, records = made_of(MODELS[name]), dealt(number)
    wanted = one_by_one(model, records, shards, 3, 0.1)
    made = updates(model, records, shards, 3, 0.1)
    assert made.shape == wanted.shape == (min(number, shards), len(model))
    assert np.abs(wanted).max() > 1e-3
    np.testing.assert_allclose(made, wanted, atol=2e-6, rtol=1e-4)


def test_few_at_a_time_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory bounds how many are trained at once."""
    model, records = made_of(MODELS["stride"]), dealt(34)  # seven shards of four, two of three
    wanted = updates(model, records, 9, 2, 0.1)
    monkeypatch.setattr(torch_model, "AT_ONCE", 3 * len(model))
    groups = list(model.shard_updates(model.first_weights(), records, 9, 2, 0.1))
    assert [len(group) for group in groups] == [3, 3, 1, 2]
    np.testing.assert_allclose(np.concatenate(groups), wanted, atol=1e-6)


def test_a_model_that_cannot_be_batched_is_trained_one_by_one() -> None:
    model, records = made_of(Curious), dealt(16)
    wanted = one_by_one(model, records, 4, 2, 0.1)
    for _ in range(2):  # the second time this is known from the start
        groups = list(model.shard_updates(model.first_weights(), records, 4, 2, 0.1))
        assert [len(group) for group in groups] == [1] * 4
        np.testing.assert_allclose(np.concatenate(groups), wanted, atol=1e-6)


def test_a_model_that_draws_draws_for_each_shard() -> None:
    model = made_of(dropping)
    records = dealt(4).take(np.repeat(np.arange(4), 3))  # three shards of the same records
    torch.manual_seed(1)
    made = updates(model, records, 3, 1, 0.1)
    assert len(made) == 3
    assert np.isfinite(made).all()
    assert len({row.tobytes() for row in made}) == 3  # other units dropped
    torch.manual_seed(1)
    np.testing.assert_array_equal(updates(model, records, 3, 1, 0.1), made)


def test_the_same_bits_again() -> None:
    first, again = (updates(made_of(MODELS["pool"]), dealt(18), 4, 2, 0.1) for _ in range(2))
    assert first.tobytes() == again.tobytes()


def sharded(model: TorchModel, records: TorchRecords, protection: Sharded) -> np.ndarray:
    start, seed = model.first_weights(), np.random.SeedSequence(1)
    task = UploadTask(model, start, records, 0.0, SimulatedNoise(1), seed)
    return protection.upload(task).astype(np.float64)


@pytest.mark.parametrize("name", ["pool", "stride", "mixed"])
@pytest.mark.parametrize("bad", [1e4, 1e30, math.inf, math.nan])
def test_no_record_breaks_the_bound(name: str, bad: float) -> None:
    """Whatever one record is, its shard moves the upload by no more than 2 clip / shards."""
    model, protection = (
        made_of(MODELS[name]),
        Sharded(records_per_shard=5, clip=0.5, steps=2, rate=1.0),
    )
    records = dealt(23)  # shards of five and of four
    here = sharded(model, records, protection)
    bound = 2 * 0.5 / 5 + rounding_reach(len(model))
    assert np.linalg.norm(here) <= 0.5 + rounding_reach(len(model))
    for place in (0, 22):
        other = records.inputs.clone()
        other[place] = bad
        there = sharded(model, TorchRecords(other, records.labels), protection)
        assert np.isfinite(there).all()
        assert 0 < np.linalg.norm(there - here) <= bound
