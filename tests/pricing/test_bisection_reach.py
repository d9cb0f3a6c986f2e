"""What bisection reaches of the exact equilibrium, and how soon.

``benchmarks/bisection.py`` measures the same over 20 seeds.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from benchmarks.lying import gained_by_lying, surplus

from noisemarket.market.negotiation import Negotiation, negotiate
from noisemarket.pricing.bisection import Bisection, curator_beliefs, hear_answer, quote
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

SURFACES = ["printed", "paper-mnist", "sharded-mnist", "features-mnist"]
BETAS = {"distribution": "log_uniform", "low": 0.05, "high": 20.0}
market = partial(Scenario.from_preset, "market", owners=50)


def share(result: Negotiation) -> float:
    """The curator's gain as a share of the equilibrium's; 1 where neither gains."""
    gain, exact = result.learned.curator_gain, result.equilibrium.curator_gain
    return gain / exact if exact > 0.0 else 1.0 - gain


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_at_least_99_per_cent_within_20_interactions(surface: str, seed: int) -> None:
    scenario = market(surface=surface, seed=seed, iterations=20)
    assert share(negotiate(scenario, mechanism="bisection")) >= 0.99


@pytest.mark.parametrize("surface", SURFACES)
def test_a_contract_follows_todays_preferences(surface: str) -> None:
    change = {"at": 1_000, "scale": {"privacy_cost": 0.5}}
    scenario = market(surface=surface, beta=BETAS, changes=[change])
    assert share(negotiate(scenario, mechanism="bisection")) >= 0.99


def test_finer_levels_approach_the_continuous_game() -> None:
    """With continuous levels the owner sells up to where the curator's limit meets its price."""
    grids, errors = (30, 100, 300, 1_000), []
    for levels in grids:
        scenario = market(
            owners=1, surface="sharded-mnist", privacy_cost=1.2, iterations=100,
            saving_levels=levels, payment_levels=levels,
        )  # fmt: skip
        result = negotiate(scenario, mechanism="bisection")
        (contract,) = result.contracts
        saving, payment = continuous(result, cost=1.2)
        errors.append((abs(contract.saving - saving), abs(contract.payment - payment)))
    for (saving, payment), levels in zip(errors, grids, strict=True):
        assert saving <= 2 * 0.6 / levels
        assert payment <= 2 * 16 / levels


def continuous(result: Negotiation, cost: float) -> tuple[float, float]:
    """The equilibrium without levels, by a fine search that knows nothing of bisection."""
    environment = result.environment
    surface, now = environment.surface, environment.phases[-1]
    savings = np.linspace(0.0, 0.6, 200_001)
    quality = surface.quality(0.6 - savings, np.array(1.0))
    worth = now.quality_weight * now.quality_value * (quality - quality[0])
    payments = 1.2 * 2.5 * cost * savings / 0.08
    price = (1.0 - now.quality_weight) * now.payment_cost * payments
    pays = (price <= worth) & (payments <= 16.0)
    best = int(np.flatnonzero(pays)[-1])
    return float(savings[best]), float(payments[best])


def test_an_interrupted_run_keeps_what_is_finished() -> None:
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    result = negotiate(market(owners=20_000), mechanism=Bisection(), threads=1, stop=stop)
    done = result.agreement.done
    assert 0 < done.sum() < 20_000
    assert not result.agreement.contracts.signed[~done].any()


def test_an_owner_that_refuses_all_but_the_curators_limit_gains_the_most() -> None:
    """No more than the limit is ever quoted, and an owner that refuses less ends there."""
    result = negotiate(market(surface="sharded-mnist", owners=12), mechanism="bisection")
    environment, contracts = result.environment, result.agreement.contracts
    gained, side, curator = (
        gained_by_lying(result), environment.owner_side(), environment.curator_side()
    )  # fmt: skip
    assert gained is not None
    assert gained.max() > 0.01
    savings, payments = environment.levels.shape
    kept = surplus(side, contracts.saving, contracts.payment)
    signs, limits = curator.signs(), curator.limits()
    for n in range(12):
        one = environment.owner_side(-1, slice(n, n + 1))
        possible = [
            (surplus(one, np.array([j]), np.array([k]))[0], j)
            for j in range(savings) for k in range(payments) if signs[n, j, k]
        ]  # fmt: skip
        best, proposal = max(possible)
        assert gained[n] == pytest.approx(max(best - kept[n], 0.0), abs=1e-9)
        beliefs, quotes = curator_beliefs(savings), []
        for _ in range(100):
            quotes.append(quote(beliefs, limits[n], proposal))
            hear_answer(beliefs, proposal, quotes[-1], quotes[-1] >= limits[n, proposal])
        assert max(quotes) == limits[n, proposal] == beliefs.signed[proposal] or proposal == 0
