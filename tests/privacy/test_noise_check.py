"""The curator's check: rare false alarms, known power, laws that agree with SciPy's."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from noisemarket.errors import BadInput
from noisemarket.privacy.noise_check import (
    LOW_SIGMA,
    Evidence,
    _evidence,
    alarm_rate,
    check_pool,
    check_steps,
    check_upload,
    tail_score,
)

PARAMETERS = 63_000
RATE = 1e-3


@pytest.mark.parametrize("degrees", [50, 1000, 63_000, 80_202, 2_406_060])
@pytest.mark.parametrize("shift", [0.0, 11.1, 2500.0, 1e5])
@pytest.mark.parametrize("rate", [0.3, 1e-3, 1e-8])
def test_tails_agree_with_scipy(degrees: int, shift: float, rate: float) -> None:
    law = stats.ncx2(degrees, shift) if shift else stats.chi2(degrees)
    spread = math.sqrt(2 * degrees + 4 * shift)
    exact = 1e-3 if degrees < 1000 else 1e-5
    for score, point in ((-ndtri(rate), law.isf(rate)), (ndtri(rate), law.ppf(rate))):
        assert tail_score(point, degrees, shift) == pytest.approx(score, abs=exact)
        # A score off by that much moves the threshold by as many spreads: nothing.
        assert tail_score(point + spread, degrees, shift) > score + 0.5


def test_scores_rise_through_the_mean() -> None:
    points = np.linspace(900.0, 1100.0, 2001)
    scores = [tail_score(float(point), 1000, 3.0) for point in points]
    assert (np.diff(scores) > 0).all()
    assert tail_score(0.0, 10, 1.0) == -math.inf


def statistics(sigma: float, used: float, length: float, trials: int) -> np.ndarray:
    """What check_upload would compute from so many uploads; drawn at once, by their law."""
    rng = np.random.default_rng(1)
    shift = (length / used) ** 2
    law = rng.noncentral_chisquare(PARAMETERS, shift, trials) if shift else None
    drawn = rng.chisquare(PARAMETERS, trials) if law is None else law
    return drawn * (used / sigma) ** 2


def thresholds(sigma: float, clip: float = 1.0) -> Evidence:
    honest = np.full(PARAMETERS, sigma)
    return check_upload(honest, sigma, clip, RATE)


def test_false_alarms_come_at_the_stated_rate() -> None:
    trials = 200_000
    limits = thresholds(0.3)
    above = (statistics(0.3, 0.3, 1.0, trials) > limits.highest).sum()
    below = (statistics(0.3, 0.3, 0.0, trials) < limits.lowest).sum()
    for alarms in (above, below):
        assert 150 <= alarms <= 250  # 200 expected, spread 14
    # An update inside the clip is accused less often, never more.
    assert (statistics(0.3, 0.3, 0.5, trials) > limits.highest).sum() <= 250


def smallest_found(sigma: float, dimension: int, rounds: int, rate: float) -> float:
    """The least excess of noise, as a part of it, that nine pooled tests in ten find at clip 1."""
    silent = check_upload(np.zeros(dimension), sigma, 1.0, rate)
    pool = check_pool([silent] * rounds, rate)
    return math.sqrt(pool.highest / stats.chi2.ppf(0.1, pool.degrees)) - 1.0


def test_power_in_one_round() -> None:
    limits = thresholds(0.3)
    trials = 20_000
    found = smallest_found(0.3, PARAMETERS, 1, RATE)
    assert found == pytest.approx(0.012, abs=0.0006)
    power = (statistics(0.3, 0.3 * (1 + found), 0.0, trials) > limits.highest).mean()
    assert power == pytest.approx(0.90, abs=0.01)
    two_per_cent_less = statistics(0.3, 0.3 * 0.98, 0.0, trials)
    assert (two_per_cent_less < limits.lowest).mean() > 0.999


def test_power_over_thirty_rounds() -> None:
    assert smallest_found(0.3, PARAMETERS, 30, RATE) == pytest.approx(0.0023, abs=0.0001)


def test_small_sigma_is_harder_and_corrected_rates_cost_little() -> None:
    found = [smallest_found(sigma, 80_202, 1, RATE) for sigma in (0.6, 0.3, 0.1, 0.05, 0.02)]
    assert found == sorted(found)
    rate = alarm_rate(1e-3, 100, 30)
    assert rate == pytest.approx(1e-3 / 12_000)
    assert smallest_found(0.3, 80_202, 1, rate) < 0.017


def uploads(used: float, length: float, rounds: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    update = np.full(PARAMETERS, length / math.sqrt(PARAMETERS))
    return [update + rng.normal(0.0, used, PARAMETERS) for _ in range(rounds)]


@pytest.mark.parametrize(
    ("used", "verdict", "score"),
    [
        (0.30, "as contracted", 0.0),
        (0.33, "too much noise", 35.0),
        (0.294, "too little noise", -7.1),
    ],
)
def test_real_uploads(used: float, verdict: str, score: float) -> None:
    evidence = check_upload(uploads(used, 1.0)[0].astype(np.float32), 0.3, 1.0, RATE)
    assert evidence.verdict == verdict
    assert evidence.method == "norm"
    assert evidence.z_score == pytest.approx(score, abs=3.0)
    assert evidence.noise_ratio == pytest.approx(used / 0.3, rel=0.01)
    assert (evidence.lowest <= evidence.statistic <= evidence.highest) == (
        verdict == "as contracted"
    )


def test_the_pool_sees_what_no_round_shows() -> None:
    rate = alarm_rate(1e-3, 1, 30)
    rounds = [check_upload(u, 0.3, 1.0, rate) for u in uploads(0.3 * 1.005, 0.5, rounds=30)]
    assert {evidence.verdict for evidence in rounds} == {"as contracted"}
    assert check_pool(rounds, rate).verdict == "too much noise"
    honest = [check_upload(u, 0.3, 1.0, rate) for u in uploads(0.3, 1.0, rounds=30)]
    assert check_pool(honest, rate).verdict == "as contracted"
    assert check_pool(honest, rate).degrees == 30 * PARAMETERS


def test_small_sigma_goes_by_differences() -> None:
    """A smooth update hides missing noise from the norm, not from the differences."""
    sigma, used = 0.01, 0.0095
    assert sigma < LOW_SIGMA
    (upload,) = uploads(used, 1.0)
    evidence = check_upload(upload, sigma, 1.0, RATE)
    assert (evidence.method, evidence.verdict) == ("differences", "too little noise")
    assert evidence.degrees == PARAMETERS // 2
    by_norm = float((upload**2).sum()) / sigma**2
    assert tail_score(by_norm, PARAMETERS, 0.0) > 0.0

    (too_much,) = uploads(0.0103, 0.5)  # of a length that an honest one may have
    assert check_upload(too_much, sigma, 1.0, RATE).verdict == "as contracted"
    (honest,) = uploads(sigma, 1.0)
    assert check_upload(honest[:-1], sigma, 1.0, RATE).degrees == (PARAMETERS - 1) // 2


@pytest.mark.parametrize("offset", [5.0, 0.007])
def test_an_offset_that_differences_cancel_shows_in_the_norm(offset: float) -> None:
    """It moves every coordinate alike, and the model as far as it wants."""
    (noise,) = uploads(0.01, 0.0)
    evidence = check_upload(noise + offset, 0.01, 1.0, RATE)
    assert (evidence.method, evidence.verdict) == ("norm", "too much noise")
    assert evidence.statistic > evidence.highest
    honest = check_upload(noise + 1.0 / math.sqrt(PARAMETERS), 0.01, 1.0, RATE)
    assert (honest.method, honest.verdict) == ("differences", "as contracted")


def test_two_tests_accuse_no_more_often_than_one() -> None:
    """On either side, for the honest owner that is nearest to the limit."""
    rng, trials, size, rate = np.random.default_rng(8), 2000, 200, 0.05
    rough = np.where(np.arange(size) % 2, 1.0, -1.0) / math.sqrt(size)
    for update, against in ((rough, "too much noise"), (0.0 * rough, "too little noise")):
        noise = rng.normal(0.0, 0.01, (trials, size))
        seen = [check_upload(update + one, 0.01, 1.0, rate).verdict for one in noise]
        assert seen.count(against) <= rate * trials + 4 * math.sqrt(rate * trials)


@pytest.mark.parametrize("sigma", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("value", [1e30, 1e150, 1e200, 1e308])
def test_what_is_beyond_all_numbers_is_too_long(sigma: float, value: float) -> None:
    upload = np.full(1000, value)
    for evidence in (
        check_upload(upload, sigma, 1.0, RATE),
        check_steps(upload, sigma, 1.0, RATE),
    ):
        assert evidence.verdict == "too much noise"
        assert evidence.z_score > 1e6


def test_no_number_is_no_excuse() -> None:
    for given in ((math.nan, 0.0), (math.nan, math.nan), (0.0, math.nan)):
        evidence = _evidence("norm", 1.0, 9, 0.0, (0.0, 2.0), *given, 1e-3)
        assert evidence.verdict != "as contracted"


def test_the_roughest_honest_update_passes_by_differences() -> None:
    signs = np.where(np.arange(PARAMETERS) % 2, 1.0, -1.0) / math.sqrt(PARAMETERS)
    noise = np.random.default_rng(4).normal(0.0, 0.01, PARAMETERS)
    assert check_upload(signs + noise, 0.01, 1.0, RATE).verdict == "as contracted"


def test_without_a_clip_only_missing_noise_shows() -> None:
    (upload,) = uploads(3.0, 50.0)
    evidence = check_upload(upload, 0.3, math.inf, RATE)
    assert (evidence.verdict, evidence.highest) == ("as contracted", math.inf)
    assert check_upload(uploads(0.29, 1.0)[0], 0.3, math.inf, RATE).verdict == "too little noise"


def test_without_noise_the_clip_must_hold() -> None:
    update = np.full(100, 0.1)
    assert check_upload(update, 0.0, 1.0, RATE).verdict == "as contracted"
    evidence = check_upload(update * 1.01, 0.0, 1.0, RATE)
    assert (evidence.method, evidence.verdict) == ("clip", "too much noise")
    with pytest.raises(BadInput, match="pool"):
        check_pool([evidence], RATE)


def test_an_owner_that_trains_nothing_passes() -> None:
    """The known gap, so that nobody believes it closed."""
    assert check_upload(uploads(0.3, 0.0)[0], 0.3, 1.0, RATE).verdict == "as contracted"


# Noise in steps, as DP-SGD adds it


SMALL, REACH = 400, 2.0


def lengths(used: float, trials: int, answer: str) -> np.ndarray:
    """How long uploads are whose owner knows its noise before it chooses its update.

    That is more than DP-SGD's steps can do, each of which knows the noise of those before it. The
    update has the greatest length allowed, and lies along the noise or against it.
    """
    noise = used * np.sqrt(np.random.default_rng(7).chisquare(SMALL, trials))
    return {"along": noise + REACH, "against": np.abs(noise - REACH), "none": noise}[answer]


def limits_of_steps(sigma: float, rate: float) -> Evidence:
    return check_steps(np.full(SMALL, sigma), sigma, REACH, rate)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("rate", [0.05, 1e-3])
def test_steps_accuse_no_honest_owner_more_often_than_stated(sigma: float, rate: float) -> None:
    trials = 200_000
    limits = limits_of_steps(sigma, rate)
    spread = math.sqrt(rate * trials)
    for answer in ("along", "against", "none"):
        seen = (lengths(sigma, trials, answer) / sigma) ** 2
        above, below = (seen > limits.highest).sum(), (seen < limits.lowest).sum()
        assert max(above, below) <= rate * trials + 4 * spread, answer
        if answer == "along":  # the bound is reached: nothing is given away for nothing
            assert above >= rate * trials - 4 * spread


def test_steps_that_react_to_each_other_pass() -> None:
    """A real sequence of steps, each along all the noise before it: the worst that it can do."""
    rng, steps, sigma = np.random.default_rng(11), 8, 0.3
    limits = limits_of_steps(sigma, 1e-2)
    seen = []
    for _ in range(3000):
        upload = np.zeros(SMALL)
        for _ in range(steps):
            length = np.linalg.norm(upload)
            if length > 0:
                upload *= 1.0 + (REACH / steps) / length
            upload += rng.normal(0.0, sigma / math.sqrt(steps), SMALL)
        seen.append(float(upload @ upload) / sigma**2)
    assert np.mean(np.array(seen) > limits.highest) <= 0.02
    # The test for noise added once would accuse such an owner wrongly, again and again.
    once = check_upload(np.full(SMALL, sigma), sigma, REACH, 1e-2)
    assert np.mean(np.array(seen) > once.highest) > 0.2


@pytest.mark.parametrize(
    ("used", "verdict"),
    [
        (0.30, "as contracted"),
        (0.33, "too much noise"),
        (0.27, "too little noise"),
        (0.0, "too little noise"),
    ],
)
def test_steps_judge_real_uploads(used: float, verdict: str) -> None:
    """At the size of a real model, and the reach of nine steps at the default rate."""
    evidence = check_steps(uploads(used, 0.4)[0].astype(np.float32), 0.3, 0.45, RATE)
    assert (evidence.verdict, evidence.method) == (verdict, "reach")
    inside = evidence.lowest <= evidence.statistic <= evidence.highest
    assert inside == (verdict == "as contracted")
    assert (evidence.z_score > 0) == (verdict == "too much noise")


def test_power_of_steps() -> None:
    """It finds less than the test for noise added once: reach over the length of the noise."""
    trials, sigma, reach = 20_000, 0.3, 0.45
    limits = check_steps(np.full(PARAMETERS, sigma), sigma, reach, RATE)
    found = statistics(sigma, sigma * 1.019, 0.0, trials) > limits.highest
    assert found.mean() > 0.9
    missed = statistics(sigma, sigma * 1.005, 0.0, trials) > limits.highest
    assert missed.mean() < 0.05
    assert (statistics(sigma, sigma * 0.98, reach, trials) < limits.lowest).mean() > 0.9


def test_steps_without_noise_have_their_reach() -> None:
    flat = np.full(100, 0.05)  # of length 0.5
    assert check_steps(flat, 0.0, 0.5, RATE).verdict == "as contracted"
    assert check_steps(flat * 1.001, 0.0, 0.5, RATE).verdict == "too much noise"


def test_a_reach_beyond_all_excludes_nothing() -> None:
    assert check_steps(np.full(9, 1e6), 0.3, 1e9, RATE).verdict == "as contracted"


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_upload(np.array([1.0, math.nan]), 0.3, 1.0, RATE),
        lambda: check_upload(np.array([1.0]), 0.3, 1.0, RATE),
        lambda: check_pool([], RATE),
        lambda: check_pool([check_steps(np.ones(9), 0.3, 1.0, RATE)], RATE),
        lambda: check_steps(np.array([1.0, math.inf]), 0.3, 1.0, RATE),
        lambda: check_steps(np.array([1.0]), 0.3, 1.0, RATE),
    ],
)
def test_bad_input(call: Callable[[], object]) -> None:
    with pytest.raises(BadInput):
        call()
