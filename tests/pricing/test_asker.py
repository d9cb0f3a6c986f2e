"""Mechanisms that ask owners learn of them only by asking, and agree the same contracts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisemarket.game.environment import Contracts
from noisemarket.game.levels import BoolArray, IntArray
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.scenario import Scenario

SCENARIO = Scenario.from_preset(
    "market", owners=9, surface="sharded-mnist", iterations=300, budget=60.0,
    privacy_cost={"distribution": "uniform", "low": 0.2, "high": 2.0},
)  # fmt: skip
ENVIRONMENT, OPTIONS = SCENARIO.environment(), run_options(SCENARIO)
ASKING = ("clock", "pac_auction", "csra_auction", "posted_price", "pain_fl", "bisection")


def run(name: str, asker: ArrayAsker | None) -> Contracts:
    return MECHANISMS[name].run(ENVIRONMENT, replace(OPTIONS, asker=asker)).contracts


@pytest.mark.compiled
@pytest.mark.parametrize("name", ASKING)
def test_the_same_contracts_by_questions_as_all_at_once(name: str) -> None:
    asked, at_once = run(name, ArrayAsker(ENVIRONMENT, OPTIONS.play.seed)), run(name, None)
    assert at_once.signed.any()
    for part in ("saving", "payment", "signed"):
        np.testing.assert_array_equal(getattr(asked, part), getattr(at_once, part))


class Unwilling(ArrayAsker):
    """The first owner accepts nothing; the others are themselves."""

    def stay(self, saving: int, owners: IntArray, payments: IntArray) -> BoolArray:
        return super().stay(saving, owners, payments) & (owners != 0)

    def bid(self, saving: int) -> IntArray:
        return np.append(ENVIRONMENT.levels.payment_levels + 1, super().bid(saving)[1:])

    def choose(self, savings: IntArray, payments: IntArray) -> IntArray:
        return np.append(-1, super().choose(savings, payments)[1:])

    def play(self, rules, quotes):  # type: ignore[no-untyped-def]
        return super().play(rules, {index: one for index, one in quotes.items() if index})


@pytest.mark.compiled
@pytest.mark.parametrize("name", [*ASKING, "dypp"])
def test_an_owner_that_declines_sells_nothing(name: str) -> None:
    contracts = run(name, Unwilling(ENVIRONMENT, OPTIONS.play.seed))
    assert (contracts.saving[0], contracts.payment[0], contracts.signed[0]) == (0, 0, False)
    assert name == "dypp" or contracts.signed.any()
