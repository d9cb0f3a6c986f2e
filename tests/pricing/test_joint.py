"""The joint value: one model, whose information adds up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisemarket.game.environment import Contracts
from noisemarket.game.value import JointValue
from noisemarket.scenario import Scenario

KINDS = {
    "alike": {},
    "sizes and betas": {
        "data_size": {"distribution": "uniform", "low": 50, "high": 900},
        "beta": {"distribution": "log_uniform", "low": 0.1, "high": 5.0},
    },
}


def some_contracts(scenario: Scenario, seed: int) -> tuple[JointValue, Contracts]:
    environment = scenario.environment()
    rng = np.random.default_rng(seed)
    savings, payments = environment.levels.shape
    saving = rng.integers(0, savings, len(environment))
    payment = rng.integers(0, payments, len(environment))
    return JointValue.of(environment), Contracts(saving, payment, saving + payment > 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_sums_give_the_same_quality_as_effective_noise_and_share(kind: str, seed: int) -> None:
    scenario = Scenario.from_preset("market", owners=17, seed=seed, **KINDS[kind])
    joint, contracts = some_contracts(scenario, seed)
    terms = joint.terms(contracts.saving, joint.records)
    assert float(joint.quality(terms.sum(axis=0))) == pytest.approx(
        joint.fitted_quality(contracts), rel=1e-12
    )


def test_the_value_is_that_of_the_formula() -> None:
    scenario = Scenario.from_preset("market", owners=9, seed=4, **KINDS["sizes and betas"])
    joint, contracts = some_contracts(scenario, 4)
    environment = scenario.environment()
    n = environment.population.data_size
    sigma = np.array([environment.levels.sigma_left(int(j)) for j in contracts.saving])
    between = 0.04 / (10 * environment.population.beta.mean() + 1) ** 2
    w = np.sqrt(n) / (sigma**2 + 1 / n + between)
    assert w.max() > 2 / 9 * w.sum()  # so that the cap binds
    while w.max() > (2 / 9 + 1e-14) * w.sum():
        w = np.minimum(w, 2 / 9 * w.sum())
    noise = math.sqrt(len(n) * (w**2 * sigma**2).sum()) / w.sum()
    share = w.sum() ** 2 / (len(n) * (w**2).sum())
    quality = environment.surface.quality(noise, environment.population.beta.mean(), share)
    paid = environment.levels.payments[contracts.payment].sum()
    expected = 9 * 0.6 * 0.2 * float(quality) - 0.4 * 0.13 * paid
    assert joint.value(contracts) == pytest.approx(expected, rel=1e-9)


def test_information_adds_up() -> None:
    """Ten who sell much bring more than all who sell as much noise in all, a little each."""
    environment = Scenario.from_preset("market").environment()
    joint, owners = JointValue.of(environment), np.arange(100)
    few, nothing = np.where(owners < 10, 10, 0), np.zeros(100, np.int64)
    much, little = (Contracts(s, nothing, s > 0) for s in (few, np.ones(100, np.int64)))
    assert joint.gain(much) > 2 * joint.gain(little) > 0.0


def test_owners_without_noise_are_no_division_by_zero() -> None:
    environment = Scenario.from_preset("market", owners=5, surface="printed").environment()
    everything = np.full(5, 12)
    contracts = Contracts(everything, np.zeros(5, np.int64), everything > 0)
    best = float(environment.surface.quality(0.0, 1.0))
    assert JointValue.of(environment).fitted_quality(contracts) == pytest.approx(best)


def test_one_seller_of_ten_is_worth_money_under_the_weight_cap() -> None:
    """Without the cap it would take most of the model, which then rests on its few records."""
    joint = JointValue.of(Scenario.from_preset("market", owners=10).environment())
    one = Contracts.same(10, 0, 0)
    one.saving[0] = 10
    assert joint.gain(one) > 0.0
    without, more = joint.sale(10)
    assert joint.quality(without + more[0]) == pytest.approx(joint.fitted_quality(one), abs=1e-9)
