"""Noise that is noise is not accused, whatever was learned; what is only as long as noise is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisemarket.privacy.noise_check import (
    Sketch,
    agreeing,
    alike,
    blocks_of,
    check_blocks,
    check_curves,
    check_upload,
    curve_sums,
    hoeffding,
)

SIZE, RATE = 2000, 1e-8


def shifts(bound: float) -> list[np.ndarray]:
    """Updates of the greatest length: in one coordinate, in one block, spread, and by chance."""
    one, block, flat = (np.zeros(SIZE) for _ in range(3))
    one[7], block[:100], flat[:] = 1.0, 1.0, 1.0
    made = [one, block, flat, np.random.default_rng(0).normal(size=SIZE)]
    return [bound * shift / np.linalg.norm(shift) for shift in made]


@pytest.mark.parametrize("bound", [1.0, 10.0, 20.0])
def test_honest_noise_around_any_update_passes(bound: float) -> None:
    rng = np.random.default_rng(1)
    for shift in shifts(bound):
        for sign in (1.0, -1.0):
            total = np.zeros(6)
            for number in range(1, 11):
                values = sign * shift + rng.normal(size=SIZE)
                assert check_blocks(values, bound, RATE) is None
                sums = curve_sums(values)
                total += sums
                assert check_curves(sums, SIZE, bound, 1, RATE) is None
                assert check_curves(total, SIZE, bound, number, RATE) is None


def test_the_curves_are_the_characteristic_function_less_its_mean() -> None:
    values = np.random.default_rng(2).normal(size=SIZE)
    by_hand = [
        sum(math.cos(t * v) for v in values) / math.sqrt(SIZE)
        - math.sqrt(SIZE) * math.exp(-t * t / 2)
        for t in (1, 2, 3)
    ] + [sum(math.sin(t * v) for v in values) / math.sqrt(SIZE) for t in (1, 2, 3)]
    assert curve_sums(values) == pytest.approx(by_hand, abs=1e-4)


def test_hoeffdings_bound_holds() -> None:
    """Frequency of passing it at a rate that can be counted: never more than stated."""
    rng = np.random.default_rng(3)
    sums = np.array([curve_sums(rng.normal(size=200)) for _ in range(2000)])
    beyond = (np.abs(sums) > hoeffding(0.05)).mean(axis=0)
    assert (beyond < 0.1).all()  # two sides


@pytest.mark.parametrize("bound", [1 / 0.6, 10.0, 20.0])
@pytest.mark.parametrize("kind", ["constant", "two points", "half", "uniform", "laplace"])
def test_vectors_as_long_as_noise_that_are_none(kind: str, bound: float) -> None:
    rng = np.random.default_rng(4)
    values = {
        "constant": np.ones(SIZE),
        "two points": rng.choice([-1.0, 1.0], SIZE),
        "half": math.sqrt(2) * rng.normal(size=SIZE) * (rng.permutation(SIZE) < SIZE // 2),
        "uniform": rng.uniform(-math.sqrt(3), math.sqrt(3), SIZE),
        "laplace": rng.laplace(0.0, math.sqrt(0.5), SIZE),
    }[kind]
    values = values * math.sqrt(SIZE) / np.linalg.norm(values)
    # The length alone sees nothing.
    assert check_upload(values / bound, 1.0 / bound, 1.0, RATE).verdict == "as contracted"
    sums = curve_sums(values)
    rounds = 1 if kind in ("constant", "two points", "half") else 4
    found = check_curves(rounds * sums, SIZE, bound, rounds, RATE)
    assert found is not None
    assert found.test == "distribution"
    assert not found.lowest <= found.statistic <= found.highest


def test_a_block_without_noise_is_found_and_one_with_too_much() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=SIZE)
    values[200:300] = 0.0
    found = check_blocks(values, 10.0, RATE)
    assert found is not None
    assert (found.reason, found.statistic) == ("too little noise in part of the upload", 0.0)
    values[200:300] = 2.5
    found = check_blocks(values, 10.0, RATE)
    assert found is not None
    assert found.reason == "too much noise in part of the upload"
    assert check_blocks(values, math.inf, RATE) is None  # nothing bounds an update: may be learned


def test_blocks_cover_everything_once() -> None:
    for size in (200, 201, 299, 2000, 11978):
        starts = blocks_of(size)
        sizes = np.diff(starts, append=size)
        assert starts[0] == 0
        assert sizes.sum() == size
        assert sizes.min() >= 100
    assert not blocks_of(199).size


# Repeats


def test_fresh_uploads_agree_in_half_of_their_bits_and_repeats_in_all() -> None:
    sketch = Sketch(SIZE, seed=9)
    rng = np.random.default_rng(6)
    before = rng.normal(size=(30, SIZE)).astype(np.float32)
    kept = sketch.of(before)
    assert kept.shape == (30, 64)
    for bound in (1.0, 10.0, 20.0):
        most = sketch.most_agreeing(bound, RATE)
        assert most < sketch.bits  # a repeat is found
        for shift in shifts(bound):
            fresh = (shift + rng.normal(size=(20, SIZE))).astype(np.float32)
            # The worst that an honest owner does: it moves as its earlier noise did.
            fresh[0] = bound * before[0] / np.linalg.norm(before[0]) + rng.normal(size=SIZE)
            agree = agreeing(sketch.of(fresh)[:, None], kept[None])
            assert agree.max() <= most
            assert agree.min() >= sketch.bits - most
    assert (np.diag(agreeing(kept[:, None], kept[None])) == sketch.bits).all()
    assert (np.diag(agreeing(sketch.of(-before)[:, None], kept[None])) == 0).all()


@pytest.mark.parametrize("steps", [False, True])
def test_who_shares_noise_is_found_and_nobody_else(steps: bool) -> None:
    rng, bound = np.random.default_rng(7), 10.0
    common = shifts(bound)[3]  # all learn the same, as far as their clips allow
    uploads = (common + rng.normal(size=(40, SIZE))).astype(np.float32)
    bounds = np.full(40, bound)
    assert not list(alike(uploads, bounds, RATE, in_steps=steps))
    uploads[5] = uploads[17]
    uploads[30] = -uploads[2]
    found = {(one.first, one.second) for one in alike(uploads, bounds, RATE, in_steps=steps)}
    assert found == {(5, 17), (2, 30)}
    assert not list(alike(uploads, np.full(40, np.inf), RATE))  # nothing bounds what they learn
    blend = (uploads[8] + uploads[9]) * np.float32(math.sqrt(0.5))
    uploads[8] = blend
    assert (8, 9) in {(one.first, one.second) for one in alike(uploads, bounds, RATE)}


def test_projected_uploads_are_noise_of_the_same_scale_around_no_longer_shifts() -> None:
    sketch, rng = Sketch(SIZE, seed=3), np.random.default_rng(9)
    noise = sketch.projected(rng.normal(size=(3000, SIZE)).astype(np.float32))
    assert noise.shape == (3000, 512)
    assert noise.std() == pytest.approx(1.0, abs=0.005)  # nine deviations of the mean square
    for shift in shifts(10.0):
        moved = sketch.projected(shift.astype(np.float32)[None])
        assert np.linalg.norm(moved) <= 10.0 * (1 + 1e-5)
    noise[5] = noise[17]
    found = {(one.first, one.second) for one in alike(noise, np.full(3000, 10.0), 1e-14)}
    assert found == {(5, 17)}


def test_pairs_are_found_across_blocks_of_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisemarket.privacy.noise_check.AT_ONCE", 4)
    uploads = np.random.default_rng(8).normal(size=(11, SIZE)).astype(np.float32)
    uploads[10] = uploads[1]
    (found,) = alike(uploads, np.ones(11), RATE)
    assert (found.first, found.second) == (1, 10)
    assert found.product == pytest.approx(float(uploads[1] @ uploads[1]), rel=1e-5)
