"""What a run says beside its market: the table of alternatives, and advice on the clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM, Alternative, _without_repeats
from noisemarket.show.market_report import advice, alternatives_table


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
        "predicted_value": 1.0, "trained_value": 1.0, "owners_surplus": 1.0,
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


@pytest.mark.parametrize(
    ("own", "clock", "better"),
    [
        ((82.1, 379.0, 50.0), (84.8, 154.0, 90.0), True),  # more for less
        ((82.1, 379.0, 50.0), (82.1, 379.0, 50.0), False),  # the same
        ((82.1, 379.0, 50.0), (82.1, 300.0, 54.0), True),
        ((92.0, 0.0, 0.0), (94.5, 112.0, 17.0), True),  # for more, but worth it
        ((92.0, 0.0, 0.0), (92.1, 112.0, -4.0), False),
        ((90.0, 50.0, 9.0), (89.0, 10.0, 8.0), False),
    ],
)
def test_the_clock_is_advised_where_it_buys_more_for_less(
    own: tuple[float, ...], clock: tuple[float, ...], better: bool
) -> None:
    rows = [
        row(name, mechanism, paid, None) | {"mean_accuracy": accuracy, "trained_value": value}
        for name, mechanism, (accuracy, paid, value) in (
            (MARKET, "dypp", own), ("clock", "clock", clock),
        )
    ]  # fmt: skip
    said = advice({"alternatives": rows})
    assert (said is not None) == better
    if said:
        assert said.endswith("To choose it: --mechanism clock")
        assert f"{clock[0]:.2f} % for {clock[1]:.2f}" in said


def test_without_the_clock_beside_it_nothing_is_advised() -> None:
    assert advice({"alternatives": []}) is None
    assert advice({"alternatives": [row(MARKET, "clock", 7.0, None)]}) is None
