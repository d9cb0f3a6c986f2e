"""The table of alternatives: the same contracts are one row, the market's own included."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM, Alternative, _without_repeats
from noisemarket.show.market_report import alternatives_table


def alternative(name: str, sigma: float) -> Alternative:
    noise = np.full(3, sigma)
    return Alternative(name, name, noise, 0.0, 0, sigma, noise, 0.0, 0.0)


def test_the_market_is_trained_once_for_all_with_its_noise() -> None:
    made = {name: alternative(name, 0.6) for name in (UNIFORM, "dypp", MARKET)}
    made |= {"best_portfolio": alternative("best_portfolio", 0.1)}
    made |= {NO_DP: alternative(NO_DP, 0.0)}
    found = {one.name: one.same_as for one in _without_repeats(made)}
    assert found == {
        UNIFORM: MARKET, "dypp": MARKET, MARKET: None, "best_portfolio": None, NO_DP: None,
    }  # fmt: skip


def row(name: str, mechanism: str | None, paid: float, same_as: str | None) -> dict[str, Any]:
    return {
        "name": name, "mechanism": mechanism, "paid": paid, "same_as": same_as, "sellers": 2,
        "accuracies": [90.0, 91.0], "mean_accuracy": 90.5, "epsilon_sold": 1.0,
        "curator_value": 1.0, "owners_surplus": 1.0,
    }  # fmt: skip


def test_equal_contracts_are_one_row_and_equal_noise_for_other_money_is_not() -> None:
    rows = [
        row(UNIFORM, "uniform", 0.0, MARKET), row("clock", "clock", 0.0, MARKET),
        row(MARKET, "dypp", 0.0, None), row("best_portfolio", "best_portfolio", 7.0, MARKET),
        row(NO_DP, None, 0.0, None),
    ]  # fmt: skip
    table = alternatives_table({"alternatives": rows})
    assert [*table.columns[0].cells] == [
        "no trade\nclock auction\n[bold]DyPP (WoLF-PHC)[/bold]", "with full knowledge",
        "no noise",
    ]  # fmt: skip
    assert [*table.columns[2].cells] == ["90.0 to 91.0", "as DyPP (WoLF-PHC)", "90.0 to 91.0"]
