"""Why nothing is bought: the sentence has the figures of the trade that is nearest to paying."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.value import JointValue
from noisemarket.pricing.mechanism import Demand
from noisemarket.pricing.no_trade import why_nothing
from noisemarket.scenario import Scenario

DEAR = {"distribution": "uniform", "low": 20.0, "high": 30.0}
MONEY, INCOME, WEIGHT = 0.4 * 0.13, 0.08, 2.5


def environment(**more: Any) -> Environment:
    given = {"owners": 6, "J": 6, "K": 8, "surface": "printed", "markup": 0.2, **more}
    return Scenario.from_preset("market", **given).environment()


def test_the_nearest_trade_of_one_owner() -> None:
    market = environment(privacy_cost=DEAR)
    quality = market.curator_side().qualities()
    best = (0.0, 0.0, 0.0, 0.0)
    for n, cost in enumerate(market.population.privacy_cost):
        for j in range(1, 7):
            asked = 1.2 * WEIGHT * cost * 0.1 * j / INCOME
            worth = 0.6 * 0.2 * (quality[n, j] - quality[n, 0]) / MONEY
            best = max(best, (worth / asked, asked, worth, 0.6 - 0.1 * j))
    said = why_nothing(market, Demand(), joint=False, currency="EUR")
    assert said == (
        f"No trade pays: the cheapest owner asks {best[1]:,.2f} EUR to lower its noise to "
        f"{best[3]:g}, which is worth {best[2]:,.2f} EUR to the curator."
    )
    assert best[1] > best[2]


def test_a_trade_that_would_pay_is_not_denied() -> None:
    said = why_nothing(environment(privacy_cost=0.3), Demand(), joint=False)
    assert said.startswith("No trade was agreed, though one would pay: the cheapest owner asks ")


def test_payments_that_suit_nobody() -> None:
    said = why_nothing(environment(privacy_cost=0.3, payment_max=0.1), Demand(), joint=False)
    assert said.startswith("No payment suits both sides: ")
    assert said.endswith("; payments go up to 0.1 (game.payment_max) in steps of 0.0125.")


def test_owners_that_sell_nothing() -> None:
    dear = why_nothing(environment(privacy_cost=100.0), Demand(), joint=True)
    assert dear.endswith(
        "no owner would lower its noise to 0.1 for the highest payment, 16 (game.payment_max)."
    )
    for joint, sale in ((False, "sell any noise"), (True, "lower its noise to 0.1")):
        held = why_nothing(environment(**{"population.floor": 0.6}), Demand(), joint=joint)
        assert held.startswith(f"Nothing is bought: no owner would {sale} for the highest payment,")
        assert held.endswith("; 6 of 6 may not at any, by floor, privacy cap or budget.")


@pytest.mark.parametrize("surface", ["printed", "features-mnist"])
def test_the_nearest_sale_for_one_model(surface: str) -> None:
    costs = {"distribution": "uniform", "low": 0.5, "high": 0.9}
    market = environment(privacy_cost=costs, quality_value=0.001, surface=surface)
    joint, saving = JointValue.of(market), 5
    asks = 1.2 * WEIGHT * market.population.privacy_cost * 0.5 / INCOME
    order = np.argsort(asks)
    found = []
    for count in range(1, 1 + int((asks <= 16.0).sum())):
        sold = np.zeros(6, dtype=np.int64)
        sold[order[:count]] = saving
        contracts = Contracts(sold, np.zeros(6, dtype=np.int64), sold > 0)
        asked, worth = asks[order[count - 1]], joint.gain(contracts) / MONEY / count
        found.append((worth / asked, -count, asked, worth))
    _, count, asked, worth = max(found)
    who, each, its = (
        ("the cheapest owner asks", "", "its")
        if count == -1
        else (f"the {-count} cheapest owners ask", " each", "their")
    )
    assert why_nothing(market, Demand(floor=0.1), joint=True) == (
        f"No trade pays: {who} {asked:,.2f} units{each} to lower {its} noise to 0.1, which is "
        f"worth {worth:,.2f} units{each} to the curator."
    )


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        (Demand(budget=0.5), "The budget of 0.5 units pays nobody: the cheapest owner asks "),
        (Demand(target=70.0), "Nothing is bought: no seller is needed for a quality of 70 %."),
    ],
)
def test_a_budget_and_a_target(demand: Demand, said: str) -> None:
    assert why_nothing(environment(privacy_cost=0.5), demand, joint=True).startswith(said)


def test_moves_at_once_have_no_signatures() -> None:
    said = why_nothing(environment(protocol="simultaneous"), Demand(), joint=False)
    assert said == "Nothing is bought: both sides settled on a saving of 0."
