"""What adding in single precision may move is charged, or comes after the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisemarket.federated.models.linear import LinearModel
from noisemarket.federated.protections import DPSGD, Sharded, UploadTask
from noisemarket.federated.protections import sharded as module
from noisemarket.privacy.noise import SimulatedNoise, add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours

REPLACE = Neighbours.REPLACE_ONE


def records(number: int, seed: int) -> tuple[LinearModel, Any]:
    rng, model = np.random.default_rng(seed), LinearModel(4, 30)
    inputs = (rng.normal(size=(number, 30)) * 10.0 ** rng.uniform(-3, 3, (number, 1))).astype(
        np.float32
    )
    return model, model.records(inputs, rng.integers(0, 4, number))


@pytest.mark.parametrize("seed", range(20))
def test_what_dp_sgd_charges_is_more_than_its_sums_are_off(seed: int) -> None:
    protection = DPSGD(batch=64, rate=0.05, clip=1.0)
    model, batch = records(64, seed)
    start = np.random.default_rng(seed).normal(size=len(model)).astype(np.float32)
    summed = model.clipped_gradient(start, batch, 1.0).astype(np.float64)
    each = (model.clipped_gradient(start, batch.take(np.array([i])), 1.0) for i in range(64))
    exact = np.sum([one.astype(np.float64) for one in each], axis=0)
    off = float(np.linalg.norm(summed - exact)) * 0.05 / 64
    assert 2.0 * off <= protection.summing_reach()


def test_the_charge_is_small_and_is_charged() -> None:
    protection = DPSGD(batch=64, rate=0.05, clip=1.0)
    ideal, charged = (protection.sensitivity(d, 64, REPLACE) for d in (0, 120))
    assert ideal == pytest.approx(2 * 0.05 / 64, rel=1e-12)
    assert charged == pytest.approx(ideal + rounding_reach(120) + protection.summing_reach())
    assert 2e-4 <= protection.summing_reach() / ideal <= 3e-4
    assert DPSGD(batch=2**24).sensitivity(1, 2**24, REPLACE) == float("inf")


def test_sharded_rounds_to_single_precision_after_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, held = records(40, 1)
    seen: list[Any] = []

    def spy(update: Any, sigma: float, source: Any) -> Any:
        seen.append(update)
        return add_noise(update, sigma, source)

    monkeypatch.setattr(module, "add_noise", spy)
    task = UploadTask(
        model, model.first_weights(), held, 0.1, SimulatedNoise(1), np.random.SeedSequence(1)
    )
    upload = Sharded(records_per_shard=5, clip=3.0).upload(task)
    (mean,) = seen
    assert (mean.dtype, upload.dtype) == (np.float64, np.float32)
    assert not np.array_equal(mean, mean.astype(np.float32))
