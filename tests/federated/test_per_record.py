"""The protection per_record: norms without updates, the owner's own X_n, and its account."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.federated.models.linear import SUMMED, LinearModel
from noisemarket.federated.models.model import Model, Records
from noisemarket.federated.protections import PerRecord, UploadTask
from noisemarket.ledger.contract import Contract
from noisemarket.owner.terms import contract_of
from noisemarket.privacy.noise import KeyedNoise, SimulatedNoise
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon

CLASSES, WIDTH = 5, 7
REPLACE = Neighbours.REPLACE_ONE


def held(count: int, seed: int = 0, length: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, WIDTH))
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype("f4"), rng.integers(0, CLASSES, count)


def start(seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=CLASSES * WIDTH).astype("f4")


def steps(model: LinearModel, at: np.ndarray, records: Records, clip: float) -> np.ndarray:
    [made] = model.record_steps(at, [records], 2.0, clip)
    return made


@pytest.mark.parametrize("count", [1, 2, 7, 30, 131])
@pytest.mark.parametrize("clip", [0.2, 3.0])
def test_norms_from_factors_are_those_of_the_updates(count: int, clip: float) -> None:
    model = LinearModel(CLASSES, WIDTH)
    records = model.records(*held(count))
    quick = steps(model, start(), records, clip)
    [formed] = Model.record_steps(model, start(), [records], 2.0, clip)
    assert quick.dtype == np.float64
    assert np.allclose(quick, formed, rtol=1e-5, atol=1e-6)
    assert 0.0 < np.linalg.norm(quick) <= count * clip


@pytest.mark.parametrize("counts", [(131, 600, 33, 2), (64, *[1] * 9), (40, 40)])
def test_owners_together_upload_the_bits_of_each_alone(counts: tuple[int, ...]) -> None:
    model, seed = LinearModel(10, 200), np.random.SeedSequence(1)
    weights = np.random.default_rng(3).normal(0.0, 0.03, 2000).astype("f4")

    def tasks() -> list[UploadTask]:
        made = []
        for owner, count in enumerate(counts):
            rows = np.random.default_rng(owner).normal(size=(count, 200)).astype("f4")
            rows[count // 2] = 1e35 if owner == 0 else rows[0]  # one record counts for nothing
            records = model.records(rows, np.arange(count) % 10)
            source = KeyedNoise(bytes(32)).stream(owner)
            made.append(UploadTask(model, weights, records, 0.5 * owner, source, seed))
        return made

    protection = PerRecord()
    together = list(protection.uploads(tasks()))
    alone = [protection.upload(task) for task in tasks()]
    assert len({upload.tobytes() for upload in alone}) == len(counts)
    assert [upload.tobytes() for upload in together] == [upload.tobytes() for upload in alone]


@pytest.mark.parametrize("huge", [1e38, 3e38])
def test_a_record_that_a_huge_model_breaks_counts_for_nothing(huge: float) -> None:
    """A curator may send any finite model. A NaN would take the other records' steps with it, and
    so tell of the one whose scores overflow."""
    model, (rows, labels) = LinearModel(CLASSES, WIDTH), held(40)
    at = np.zeros((CLASSES, WIDTH), "f4")
    at[:, 0] = [huge, -huge, huge, -huge, 0.0]
    rows[:, 0] = 0.0
    whole = steps(model, at.reshape(-1), model.records(rows, labels), 1.0)
    assert np.linalg.norm(whole) > 1.0
    rows[7, 0] = 10.0
    spoilt = steps(model, at.reshape(-1), model.records(rows, labels), 1.0)
    assert np.linalg.norm(spoilt - whole) <= 1.0


def test_residuals_whose_squares_underflow_do_not_escape_the_clip() -> None:
    """A record that is nearly right has residuals of 1e-26; its features are as much too long."""
    model, row = LinearModel(CLASSES, WIDTH), np.full((1, WIDTH), 1e28, "f4")
    start = np.zeros((CLASSES, WIDTH), "f4")
    start[0] = 60.0 / (WIDTH * 1e28)
    made = steps(model, start.reshape(-1), model.records(row, np.array([0])), 0.5)
    assert 0.0 < np.linalg.norm(made) <= 0.5


@pytest.mark.parametrize("rate", [8.0, 1e30, 1e39, 1e300])
def test_no_rate_lets_one_record_spoil_the_steps_of_others(rate: float) -> None:
    """The curator names the rate: a factor that overflows must not make the whole sum a NaN."""
    model, (rows, labels) = LinearModel(CLASSES, WIDTH), held(40)
    for odd in (np.zeros(WIDTH), np.full(WIDTH, 1e-44), np.full(WIDTH, 1e-20)):
        changed = rows.copy()
        changed[7] = odd
        made, other = (
            next(iter(model.record_steps(start(), [model.records(one, labels)], rate, 0.5)))
            for one in (rows, changed)
        )
        assert 0.0 < np.linalg.norm(made - other) <= 1.001


def test_the_sensitivity_is_of_the_owners_own_number_of_shards() -> None:
    for records in (600, 1):
        protection = PerRecord(clip=0.5)
        assert protection.shards(records) == records
        assert protection.sensitivity(0, records, REPLACE) == pytest.approx(1.0 / records)
        rounded = protection.sensitivity(2000, records, REPLACE)
        assert 1.0 / records < rounded < 1.01 / records + 1e-5
    zero = PerRecord().sensitivity(0, 600, Neighbours.ZERO_OUT)
    assert zero == PerRecord().sensitivity(0, 600, REPLACE) / 2


def test_rounding_is_charged_and_hardly_grows_with_the_records() -> None:
    for records in (1, 600, 10**6):
        ideal, charged = (PerRecord(clip=0.5).sensitivity(d, records, REPLACE) for d in (0, 1))
        assert 2.0 * SUMMED * 2.0**-24 * 0.5 < charged - ideal < 3e-6


def test_a_sum_of_many_single_steps_is_within_the_rounding_that_is_charged() -> None:
    model, count = LinearModel(CLASSES, WIDTH), 3001  # no whole number of lots
    records, clip = model.records(*held(count)), 0.2
    made = steps(model, start(), records, clip)
    alone = [records.take(np.array([i])) for i in range(count)]
    exact = sum(steps(model, start(), one, clip) for one in alone)
    charged = PerRecord(clip=clip).sensitivity(1, count, REPLACE) - 2.0 * clip / count
    assert 0.0 < np.linalg.norm(made - exact) / count < charged / 2.0


def contract(records: int, **settings: object) -> Contract:
    protection = PerRecord(**settings)  # type: ignore[arg-type]
    stated = {
        "job": "job", "owner": "anna", "owner_key": "0" * 64, "curator_key": "1" * 64,
        "saving": 0.0, "sigma": 0.6, "payment": 0, "rounds": 30, "protection": "per_record",
        "settings": protection.settings(), "neighbours": "replace_one", "delta": 1e-5,
        "simulated": False, "false_alarm": 1e-3,
        "weight_cap": 0.1, "count_cap": 3.0,
        "offered_at": "2030-01-01T00:00:00+00:00", "expires_at": "2030-01-02T00:00:00+00:00",
    }  # fmt: skip
    budget = protection.budget(
        "anna", 0.6, dimension=0, records=records, neighbours=REPLACE, delta=1e-5
    )
    return contract_of(stated, budget, records)


def test_a_contract_states_its_own_owners_shards_and_epsilon() -> None:
    large, small = contract(600), contract(150)
    assert (large.shards, small.shards) == (600, 150)
    assert large.rho_per_round == pytest.approx(2.0 / (600**2 * 0.6**2))
    assert large.epsilon == pytest.approx(0.093, abs=5e-4)
    assert small.epsilon == pytest.approx(0.42, abs=5e-3)
    stated = Contract.from_bytes(contract(600, rate=4.0).bytes()).protection_settings
    assert PerRecord.settings_in(stated) == {"clip": 1.0, "rate": 4.0}
    assert PerRecord.from_contract(stated) == PerRecord(rate=4.0)


def test_an_owner_of_one_record_has_a_very_large_epsilon_that_is_stated() -> None:
    alone = contract(1)
    assert alone.shards == 1
    assert alone.epsilon == pytest.approx(gaussian_epsilon(30 * 2.0 / 0.36, 1e-5))
    assert 100.0 < alone.epsilon < math.inf


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, 2.0**20 + 1.0, "a"])
def test_a_clip_that_no_noise_can_hide_is_refused(clip: float) -> None:
    with pytest.raises(BadInput, match="clip"):
        PerRecord(clip=clip)


def test_an_upload_is_the_mean_of_clipped_steps_and_noise() -> None:
    model = LinearModel(CLASSES, WIDTH)
    records, protection = model.records(*held(40)), PerRecord(clip=0.3, rate=2.0)
    task = UploadTask(model, start(), records, 0.0, SimulatedNoise(1), np.random.SeedSequence(1))
    plain = protection.upload(task).astype(np.float64)
    single = [
        protection.upload(
            UploadTask(model, start(), records.take(np.array([i])), 0.0, task.noise, task.seed)
        )
        for i in range(40)
    ]
    assert np.allclose(plain, np.mean(single, axis=0), atol=1e-6)
    assert max(np.linalg.norm(one) for one in single) <= 0.3
