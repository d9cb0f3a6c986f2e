"""The rule by which useful owners are paid: its error rates are those that it states."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from tests.privacy.whole_standing import standing_of

from noisemarket.errors import BadInput
from noisemarket.privacy.usefulness_rule import (
    UsefulnessRule,
    UsefulStanding,
    standings,
)

RULE = UsefulnessRule(length=0.12, missed=1e-3, directions=11)


def test_the_threshold_is_what_a_useful_owner_reaches() -> None:
    for sigma, rounds in ((0.05, 30), (0.1, 30), (0.1, 10), (0.6, 30)):
        signal = 0.12 * np.sqrt(rounds) / sigma
        threshold = RULE.threshold(sigma, rounds)
        assert norm.sf(threshold - signal) == pytest.approx(1.0 - 5e-4)
        assert RULE.idle_paid(sigma, rounds) == pytest.approx(min(1.0, 11 * norm.sf(threshold)))
    assert RULE.threshold(0.1, 100) == RULE.threshold(0.1, 30)
    assert RULE.idle_paid(0.1, 30) < 0.01
    assert RULE.idle_paid(0.6, 30) == 1.0  # so much noise hides whether anything was learned


def test_a_contract_states_the_rule_and_its_rates() -> None:
    stated = RULE.stated(0.1, 30)
    assert UsefulnessRule.of(stated) == RULE
    assert stated["threshold"] == pytest.approx(RULE.threshold(0.1, 30), rel=1e-5)
    assert UsefulnessRule.of(RULE.terms()) == RULE
    short = UsefulnessRule(0.12, 1e-3, 11, reach=0.5)
    assert UsefulnessRule.of(short.stated(0.1, 30)) == short
    assert short.threshold(0.05, 30) == pytest.approx(RULE.threshold(0.1, 30))


@pytest.mark.parametrize(
    "stated",
    [{}, {"length": 0.1}, {"length": "x", "missed": 0.1, "directions": 3},
     {"length": 0.1, "missed": 2.0, "directions": 3},
     {"length": 0.1, "missed": 0.1, "directions": 0}],
)  # fmt: skip
def test_what_is_no_rule_is_refused(stated: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="usefulness"):
        UsefulnessRule.of(stated)


def test_who_learns_nothing_is_paid_as_rarely_as_stated_and_who_helps_always() -> None:
    rng, size, rounds, sigma, jobs = np.random.default_rng(1), 40, 30, 0.1, 4000
    directions = rng.normal(size=(rounds, 11, size)) * rng.uniform(0.1, 1.0, (rounds, 1, 1))
    gram = np.einsum("rkd,rld->kl", directions, directions)
    noise = rng.normal(size=(jobs, rounds, size))
    along = np.einsum("rkd,nrd->nk", directions, noise)
    best, against = standings(along, np.broadcast_to(gram, (jobs, 11, 11)))
    paid = best >= RULE.threshold(sigma, rounds)
    assert paid.mean() <= RULE.idle_paid(sigma, rounds) * 1.5
    assert (against > RULE.most_against()).mean() <= 1e-3
    # Along the third direction, by the length that counts as useful in every round.
    wanted = directions[:, 2] * 0.12 / np.sqrt((directions[:, 2] ** 2).sum() / rounds)
    helped = along + np.einsum("rkd,rd->k", directions, wanted) / sigma
    best, against = standings(helped, np.broadcast_to(gram, (jobs, 11, 11)))
    met = [
        RULE.met(UsefulStanding(rounds, *at), sigma, rounds)
        for at in zip(best, against, strict=True)
    ]
    assert np.mean(met) > 0.997
    _, against = standings(-2.0 * helped, np.broadcast_to(gram, (jobs, 11, 11)))
    assert (against > 0.0).mean() > 0.9


def test_staying_away_makes_it_no_easier_to_be_paid_for_noise() -> None:
    few = UsefulStanding(15, RULE.threshold(0.1, 15) + 0.01, 0.0)
    assert few.best < RULE.threshold(0.1, 30)
    assert not RULE.met(few, 0.1, 30)
    assert RULE.met(UsefulStanding(15, RULE.threshold(0.1, 30), 0.0), 0.1, 30)


def test_an_owner_computes_its_own_standing() -> None:
    rng = np.random.default_rng(2)
    directions, uploads = rng.normal(size=(5, 3, 20)), rng.normal(size=(5, 20))
    at = standing_of(uploads, directions, sigma=0.5)
    z = [
        sum(uploads[t] @ directions[t, k] for t in range(5))
        / 0.5
        / np.sqrt(sum(directions[t, k] @ directions[t, k] for t in range(5)))
        for k in range(3)
    ]
    assert (at.rounds, at.best) == (5, pytest.approx(max(z)))
    back = standing_of(-uploads, directions, sigma=0.5)
    assert back.best == pytest.approx(-min(z))
    assert standing_of(np.zeros((0, 20)), np.zeros((0, 3, 20)), 0.5) == UsefulStanding(0, 0.0, 0.0)
