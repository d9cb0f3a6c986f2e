"""What every protection must hold, for those of this package and of others.

A test module gets the whole suite with one class::

    class TestMine(ProtectionConformance):
        protection = MyProtection(clip=0.5)

The protection should suit a linear model with gradients of norm 1 to 10 and owners of 40 records.
Most of the noise tests run on records without gradient, so that an upload is its noise alone.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from noisemarket.federated.models.linear import LinearModel
from noisemarket.federated.models.model import Model
from noisemarket.federated.models.torch_model import TorchModel
from noisemarket.federated.protections import Protection, UploadTask
from noisemarket.ledger.contract import Contract, nonce_of
from noisemarket.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from noisemarket.privacy.zcdp import Neighbours, gaussian_rho

WIDTH, CLASSES, RECORDS = 144, 10, 40
SIGMA = 0.3
RATE = 1e-6
"""False alarm rate of one side of a check."""
HUGE = float(np.finfo(np.float32).max)


def module() -> nn.Module:
    """A linear model without bias: a black image has no gradient."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, CLASSES, bias=False))


MODELS: dict[str, Callable[[], Model]] = {
    "torch": lambda: TorchModel(module()),
    "linear": lambda: LinearModel(CLASSES, WIDTH),
}


@dataclass(frozen=True)
class Held:
    """An owner's data, for whatever model."""

    inputs: np.ndarray
    labels: np.ndarray


def some_records(count: int = RECORDS, seed: int = 0) -> Held:
    """Random records of all classes."""
    rng = np.random.default_rng(seed)
    return Held(rng.normal(size=(count, WIDTH)).astype("f4"), rng.integers(0, CLASSES, count))


def black(count: int = RECORDS) -> Held:
    """Records without gradient, so that an upload is its noise alone."""
    return Held(np.zeros((count, WIDTH), "f4"), np.zeros(count, np.int64))


def replaced(old: Held, index: int, values: np.ndarray, label: int) -> Held:
    """The owner's data with one record replaced by another."""
    inputs, labels = old.inputs.copy(), old.labels.copy()
    inputs[index], labels[index] = values, label
    return Held(inputs, labels)


def one_pixel(value: float) -> np.ndarray:
    """An image that is black but for one pixel."""
    values = all_pixels(0.0)
    values[0] = value
    return values


def all_pixels(value: float) -> np.ndarray:
    """An image of one colour."""
    return np.full(WIDTH, value, "f4")


ADVERSARIAL = {
    "zero": all_pixels(0.0),
    "large": all_pixels(1e4),
    "huge": all_pixels(-1e30),
    "largest pixel": one_pixel(HUGE),
    "all largest": all_pixels(HUGE),
    "infinite": all_pixels(math.inf),
    "NaN": one_pixel(math.nan),
}


class ProtectionConformance:
    """The suite. ``protection`` is the one to test."""

    protection: ClassVar[Protection]
    model: Model

    @pytest.fixture(autouse=True, params=MODELS)
    def _with_model(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.model = MODELS[request.param]()
        with self.model.one_thread():
            yield

    def upload(
        self, held: Held, sigma: float = 0.0, noise: NoiseSource | None = None, order: int = 9
    ) -> np.ndarray:
        model = self.model
        drawn = np.random.default_rng(5).uniform(-0.1, 0.1, len(model))
        start = drawn.astype("f4")
        kept = start.copy()
        source = SimulatedNoise(1) if noise is None else noise
        own, seeds = model.records(held.inputs, held.labels), np.random.SeedSequence(order)
        out = self.protection.upload(UploadTask(model, start, own, sigma, source, seeds))
        assert out.dtype == np.float32
        assert out.shape == (len(model),)
        assert np.array_equal(start, kept), "the global model must be left alone"
        return out

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.protection.sensitivity(10, RECORDS, Neighbours.REPLACE_ONE))

    # What it guarantees

    @pytest.mark.parametrize("attack", ADVERSARIAL)
    @pytest.mark.parametrize("index", [0, 13])
    def test_no_record_moves_the_upload_beyond_the_sensitivity(
        self, attack: str, index: int
    ) -> None:
        """With noise off. Where noise goes on several steps, the bound is that of a single one."""
        if not self.bounded:
            assert math.isinf(self.budget().rho_per_round), "nothing may be guaranteed"
            return
        for count in (self.protection.parts(1) if self.protection.noise_in_steps else RECORDS, 3):
            held = some_records(count)
            before = self.upload(held).astype(np.float64)
            bound = self.protection.sensitivity(before.size, count, Neighbours.REPLACE_ONE)
            for label in (0, CLASSES - 1):
                other = replaced(held, index % count, ADVERSARIAL[attack], label)
                assert np.linalg.norm(self.upload(other) - before) <= bound

    def test_the_whole_owner_is_hidden_where_it_says_so(self) -> None:
        hidden = self.protection.protects(Neighbours.REPLACE_ONE, RECORDS)
        if not self.protection.whole_owner(RECORDS):
            assert "one record" in hidden
            return
        assert "whole data" in hidden
        ends = [self.upload(some_records(count, seed)).astype(np.float64)
                for count, seed in ((RECORDS, 1), (RECORDS, 2), (1, 3))]  # fmt: skip
        bound = self.protection.sensitivity(ends[0].size, RECORDS, Neighbours.REPLACE_ONE)
        assert max(np.linalg.norm(one - ends[0]) for one in ends) <= bound

    def test_zeroing_out_costs_less_than_replacing(self) -> None:
        zero, replace = (
            self.protection.sensitivity(1000, RECORDS, neighbours)
            for neighbours in (Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
        )
        assert 0.0 < zero <= replace
        said = {self.protection.protects(neighbours, RECORDS) for neighbours in Neighbours}
        assert len(said) == 2
        assert all(text.isprintable() and text for text in said)

    def budget(self, sigma: float = SIGMA) -> Any:
        return self.protection.budget(
            "anna", sigma, dimension=1000, records=RECORDS, neighbours=Neighbours.REPLACE_ONE,
            delta=1e-5,
        )  # fmt: skip

    def test_its_budget_is_of_its_sensitivity(self) -> None:
        budget = self.budget()
        far = self.protection.sensitivity(1000, RECORDS, Neighbours.REPLACE_ONE)
        assert budget.rho_per_round == gaussian_rho(far, SIGMA)
        assert budget.protection == self.protection.name
        assert budget.protects == self.protection.protects(Neighbours.REPLACE_ONE, RECORDS)

    def test_an_upload_without_noise_is_within_its_reach(self) -> None:
        for count in (1, RECORDS):
            length = np.linalg.norm(self.upload(some_records(count)).astype(np.float64))
            assert 0.0 < length <= self.protection.reach(count) * (1.0 + 1e-6)

    # Its noise

    def test_noise_has_the_stated_size_on_every_weight(self) -> None:
        noise = np.stack([
            self.upload(black(), SIGMA, SimulatedNoise(1).stream(key)) for key in range(20)
        ]).astype(np.float64)  # fmt: skip
        assert noise.var() == pytest.approx(SIGMA**2, rel=0.03)
        assert noise.var(axis=0).min() > 0.1 * SIGMA**2
        assert abs(noise.mean()) < 5.0 * SIGMA / math.sqrt(noise.size)
        apart = (noise[0::2] - noise[1::2]) / math.sqrt(2.0)
        assert apart.var() == pytest.approx(SIGMA**2, rel=0.05), "two uploads share noise"

    def test_noise_is_that_of_the_source(self) -> None:
        held = some_records()
        first, again, other = (
            self.upload(held, SIGMA, SimulatedNoise(1).stream(key)) for key in (1, 1, 2)
        )
        assert np.array_equal(first, again)
        assert (first != other).mean() > 0.9
        secure = [self.upload(held, SIGMA, SecureNoise()) for _ in range(2)]
        assert (secure[0] != secure[1]).mean() > 0.9

    def test_without_noise_no_source_matters(self) -> None:
        held = some_records()
        assert np.array_equal(self.upload(held), self.upload(held, 0.0, SecureNoise()))

    # Its check

    def check(self, upload: np.ndarray, sigma: float, longest: float) -> str:
        stated = self.contract(sigma).protection_settings
        protection = self.protection
        return protection.check_upload(upload, sigma, RATE, stated, longest).verdict

    def honest(self, sigma: float) -> tuple[list[np.ndarray], float]:
        """Uploads of a round, and how long one of them may be."""
        uploads = {
            owner: self.upload(some_records(seed=owner), sigma, SimulatedNoise(2).stream(owner))
            for owner in range(6)
        }
        longest = self.protection.usual_length(uploads, dict.fromkeys(uploads, sigma))
        return list(uploads.values()), longest

    @pytest.mark.parametrize("sigma", [SIGMA, 0.01, 0.0])
    def test_an_honest_upload_is_as_contracted(self, sigma: float) -> None:
        uploads, longest = self.honest(sigma)
        assert {self.check(upload, sigma, longest) for upload in uploads} == {"as contracted"}

    @pytest.mark.parametrize(
        ("factor", "verdict"), [(0.5, "too little noise"), (3.0, "too much noise")]
    )
    def test_other_noise_than_contracted_is_found(self, factor: float, verdict: str) -> None:
        _, longest = self.honest(SIGMA)
        wrong = self.upload(some_records(), factor * SIGMA, SimulatedNoise(2))
        assert self.check(wrong, SIGMA, longest) == verdict

    def test_a_verdict_is_said_in_words(self) -> None:
        _, longest = self.honest(SIGMA)
        stated = self.contract(SIGMA).protection_settings
        wrong = self.upload(some_records(), 3.0 * SIGMA, SimulatedNoise(2))
        seen = self.protection.check_upload(wrong, SIGMA, RATE, stated, longest)
        assert self.protection.explain(seen).isprintable()
        assert self.protection.explain(seen) != "as contracted"

    # Its settings

    def contract(self, sigma: float = SIGMA) -> Contract:
        settings = self.protection.contract_settings(RECORDS)
        return Contract(
            job="job", owner="anna", owner_key="0" * 64, curator_key="1" * 64, saving=0.1,
            sigma=sigma, payment=5, protection=self.protection.name, rounds=3,
            rho_per_round=math.inf, rho_cap=math.inf, epsilon=math.inf, delta=1e-5,
            neighbours="replace_one", protects="one record",
            offered_at="2030-01-01T00:00:00+00:00", expires_at="2030-01-02T00:00:00+00:00",
            nonce=nonce_of("job", "anna"), clip=settings.pop("clip", None),
            shards=settings.pop("shards", None), settings=settings,
        )  # fmt: skip

    def test_a_contract_states_all_that_defines_it(self) -> None:
        signed = Contract.from_bytes(self.contract().bytes())
        stated = json.loads(json.dumps(signed.protection_settings))
        assert type(self.protection).from_contract(stated) == self.protection
        assert type(self.protection).from_settings(self.protection.settings()) == self.protection

    def test_it_can_be_sent_to_a_worker_process(self) -> None:
        assert pickle.loads(pickle.dumps(self.protection)) == self.protection

    def test_it_has_a_name(self) -> None:
        assert self.protection.name.isidentifier()
