"""The best portfolio, against enumeration where that can be done."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.value import JointValue
from noisemarket.pricing.mechanism import Demand
from noisemarket.pricing.oracles import best_portfolio
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.slow

SMALL = {"J": 4, "K": 9, "owners": 5}
CHEAP = {"distribution": "uniform", "low": 0.1, "high": 1.2}
KINDS = {
    "alike": {"privacy_cost": CHEAP},
    "default costs": {},
    "sizes and betas": {
        "privacy_cost": CHEAP,
        "data_size": {"distribution": "uniform", "low": 20, "high": 900},
        "beta": {"distribution": "log_uniform", "low": 0.1, "high": 5.0},
    },
    "printed surface": {"privacy_cost": CHEAP, "surface": "printed"},
    "costs nothing": {"privacy_cost": 0.0},
    "worthless money": {"payment_value": 0.0},
}


def all_portfolios(environment: Environment, demand: Demand) -> list[Contracts]:
    """Every portfolio that a budget allows, each seller paid its reserve."""
    levels, signs = environment.levels, environment.owner_side().signs()
    last = np.flatnonzero([levels.sigma_left(j) >= demand.floor - 1e-9 for j in range(5)])[-1]
    menus = []
    for own in signs:
        sold = [(j, int(np.argmax(own[j]))) for j in range(1, last + 1) if own[j].any()]
        menus.append([(0, 0), *sold])
    out = []
    for combination in itertools.product(*menus):
        saving, payment = np.array(combination).T
        if demand.budget is None or levels.payments[payment].sum() <= demand.budget + 1e-9:
            out.append(Contracts(saving, payment, (saving > 0) | (payment > 0)))
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [None, 20.0, 0.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_nearly_the_best_of_all(kind: str, budget: float | None, seed: int) -> None:
    environment = Scenario.from_preset("market", seed=seed, **(SMALL | KINDS[kind])).environment()
    demand, joint = Demand(floor=0.15, budget=budget), JointValue.of(environment)
    best = max(joint.gain(one) for one in all_portfolios(environment, demand))
    found = joint.gain(best_portfolio(environment, demand))
    assert 0.97 * best - 1e-9 <= found <= best + 1e-9


@pytest.mark.parametrize("kind", ["alike", "sizes and betas"])
@pytest.mark.parametrize("part", [0.3, 0.8])
def test_a_target_is_reached_for_little_money(kind: str, part: float) -> None:
    environment = Scenario.from_preset("market", **(SMALL | KINDS[kind])).environment()
    joint, payments = JointValue.of(environment), environment.levels.payments
    every = all_portfolios(environment, Demand(floor=0.15))
    qualities = [joint.fitted_quality(one) for one in every]
    target = min(qualities) + part * (max(qualities) - min(qualities))
    least = min(
        payments[one.payment].sum()
        for one, quality in zip(every, qualities, strict=True)
        if quality >= target
    )
    found = best_portfolio(environment, Demand(floor=0.15, target=target))
    assert least <= payments[found.payment].sum() <= 1.2 * least
    assert joint.fitted_quality(found) >= target
    with pytest.raises(BadInput, match=r"market.target_accuracy .* is out of reach"):
        best_portfolio(environment, Demand(floor=0.15, target=max(qualities) + 0.1))


def test_everyone_is_paid_its_reserve() -> None:
    environment = Scenario.from_preset("market").environment()
    contracts = best_portfolio(environment, Demand())
    signs = environment.owner_side().signs()
    sold = np.flatnonzero(contracts.signed)
    assert len(sold) > 3
    for owner in sold:
        saving, payment = contracts.saving[owner], contracts.payment[owner]
        assert signs[owner, saving, payment]
        assert not signs[owner, saving, payment - 1]


def test_order_of_owners_does_not_matter() -> None:
    environment = Scenario.from_preset("market", owners=40).environment()
    found = best_portfolio(environment, Demand(budget=60.0))
    turned = best_portfolio(reordered(environment), Demand(budget=60.0))
    np.testing.assert_array_equal(turned.saving[::-1], found.saving)


def reordered(environment: Environment) -> Environment:
    """The same owners, in the opposite order."""
    from dataclasses import fields, replace

    def turned(one: object, names: tuple[str, ...]) -> dict[str, object]:
        return {f.name: getattr(one, f.name)[::-1] for f in fields(one) if f.name in names}  # type: ignore[arg-type]

    population = environment.population
    population = replace(population, **turned(population, tuple(vars(population))))
    own = ("privacy_cost", "markup", "beta")
    phases = tuple(replace(one, **turned(one, own)) for one in environment.phases)
    return replace(environment, population=population, phases=phases)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_more_money_never_buys_less(seed: int) -> None:
    """Many who sell little may know more than few who sell much."""
    environment = Scenario.from_preset("market", seed=seed).environment()
    budgets = [None, *map(float, range(100, 0, -10))]
    joint = JointValue.of(environment)
    values = [joint.gain(best_portfolio(environment, Demand(budget=one))) for one in budgets]
    for more, less in itertools.pairwise(values):
        assert more >= 0.98 * less


def test_a_budget_that_does_not_pay_for_the_target_holds() -> None:
    environment = Scenario.from_preset("market").environment()
    found = best_portfolio(environment, Demand(budget=50.0, target=94.0))
    assert 0.0 < environment.levels.payments[found.payment].sum() <= 50.0
