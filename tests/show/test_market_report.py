"""What a run shows: the table of alternatives, advice on the clock, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from noisemarket.federated.engine import Score
from noisemarket.federated.rounds import RoundResult
from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM, Alternative, _without_repeats
from noisemarket.market.negotiation import Negotiation, negotiate
from noisemarket.market.outcome import OwnerOutcome
from noisemarket.scenario import Scenario
from noisemarket.show import market_report
from noisemarket.show.market_report import advice, alternatives_table, within_draws


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
    table = alternatives_table({"alternatives": rows, "currency": "EUR"})
    assert [*table.columns[0].cells] == [
        "no trade,\nclock auction,\n[bold]DyPP (WoLF-PHC)[/bold]", "with full knowledge",
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
    said = advice({"alternatives": rows, "currency": "EUR"})
    assert (said is not None) == better
    if said:
        assert said.endswith("To choose it: --mechanism clock")
        assert f"{clock[0]:.2f} % for {clock[1]:.2f}" in said


def test_an_order_that_may_be_chance_is_said() -> None:
    rows = [row(MARKET, "dypp", 9.0, None), row("clock", "clock", 7.0, None)]
    rows.append(row(UNIFORM, "uniform", 0.0, None) | {"accuracies": [80.0, 81.0]})
    (said,) = within_draws({"alternatives": rows})
    assert said.endswith("may be chance: DyPP (WoLF-PHC) and clock auction.")
    assert within_draws({"alternatives": rows[1:]}) == []


def test_without_the_clock_beside_it_nothing_is_advised() -> None:
    alone = {"alternatives": [], "predicted_value": 2.0, "total_paid": 38.0, "currency": "EUR"}
    assert advice(alone) is None
    dear = advice(alone | {"predicted_value": -2.01})
    assert dear is not None
    assert "this trade is not worth its money: 38.00 EUR. --mechanism clock" in dear
    assert advice({"alternatives": [row(MARKET, "clock", 7.0, None)]}) is None


def owner_row(number: int, saving: float, epsilon: float, paid: float) -> OwnerOutcome:
    return OwnerOutcome(
        owner=str(number), records=600, saving_level=0, payment_level=0, saving=saving,
        sigma=0.6 - saving, payment_micro=int(paid * 1e6), weight=0.1, rho=0.1, epsilon=epsilon,
        delta=1e-5, releases=2, paid_micro=int(paid * 1e6), state="paid", reason="",
        loss_lowered=0.1, loss_lowered_error=0.02,
    )  # fmt: skip


def results(last: float) -> list[RoundResult]:
    return [
        RoundResult(number, Score(last - 10.0 / number + 1.25, 0.5), None, 0.1, 100, ())
        for number in range(1, 9)
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws the figure of a market with these sellers: (epsilon, paid) of each, others nothing."""

    def draw(
        game: Negotiation, sellers: list[tuple[float, float]], names: Sequence[str] = ()
    ) -> Any:
        canvases: list[Any] = []
        monkeypatch.setattr(market_report, "save", lambda canvas, *_: canvases.append(canvas) or [])
        rows = [owner_row(i, 0.5, *one) for i, one in enumerate(sellers)]
        if names:
            rows = [replace(row, owner=name) for row, name in zip(rows, names, strict=True)]
        rows += [owner_row(i, 0.0, 0.093, 0.0) for i in range(len(rows), 100)]
        outcome: Any = SimpleNamespace(
            negotiation=game, mechanism=game.scenario.mechanism, owners=rows,
            results=results(82.0), currency="EUR",
        )  # fmt: skip
        others = [
            alternative(UNIFORM, 0.6), alternative(MARKET, 0.4), alternative("clock", 0.3),
            alternative("best_portfolio", 0.2), alternative(NO_DP, 0.0),
        ]  # fmt: skip
        ends = {UNIFORM: 75.6, MARKET: 82.5, "clock": 84.8, "best_portfolio": 84.9, NO_DP: 95.5}
        compared: Any = {name: [results(end), results(end + 1.0)] for name, end in ends.items()}
        folder: Any = SimpleNamespace(path=Path("r"))
        market_report.draw_market(folder, outcome, compared, others)
        return canvases[0]

    return draw


def overlapping(canvas: Any) -> list[tuple[str, str]]:
    """Texts of each panel that lie on one another."""
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw(renderer)
    out = []
    for axis in canvas.axes:
        texts = [one for one in axis.texts if one.get_text()]
        boxes = [(one.get_text(), one.get_window_extent(renderer)) for one in texts]
        out += [(a[0], b[0]) for a, b in combinations(boxes, 2) if a[1].overlaps(b[1])]
    return out


def test_few_sellers_are_called_by_their_names(drawn: Any) -> None:
    game = negotiate(Scenario.from_preset("market", owners=4), mechanism="clock")
    canvas = drawn(game, [(1.0, 16.0), (1.4, 16.0)], ["Ohio", "Texas"])
    texts = {one.get_text() for one in canvas.axes[1].texts}
    assert texts == {"Ohio\n16.00", "Texas\n16.00", "98 owners sold nothing"}


CHANGED = {"at": 600, "scale": {"privacy_cost": 0.5}}


@pytest.mark.compiled
def test_a_game_has_four_panels_with_the_exact_equilibrium(drawn: Any) -> None:
    made = Scenario.from_preset("market", owners=4, iterations=1000, surface="printed",
                                changes=(CHANGED,))  # fmt: skip
    game = negotiate(made, threads=1)
    many = [(1.41, 15.5 - i % 7) for i in range(20)]
    canvas = drawn(game, many + [(0.2, 3.0), (0.3, 7.0), (0.65, 9.5), (0.9, 12.0)] * 2)
    saving, payment, accuracy, privacy = canvas.axes
    trace = game.agreement.trace
    assert trace is not None
    exact = [game.exactly("equilibrium", phase) for phase in (0, 1)]
    for axis, series, name in (
        (saving, trace.saving, "mean_saving"), (payment, trace.payment, "mean_payment"),
    ):  # fmt: skip
        played, step = axis.lines
        np.testing.assert_array_equal(played.get_ydata(), series)
        ends = [getattr(one, name) for one in exact]
        at = np.where(trace.iteration <= CHANGED["at"], *ends)
        np.testing.assert_array_equal(step.get_ydata(), at)
        assert any("exact equilibrium" in one.get_text() for one in axis.get_legend().get_texts())
    assert "+6.6 points over no trade by DyPP" in accuracy.get_title(loc="left")
    assert [one.get_text() for one in privacy.texts] == ["72 owners sold nothing"]
    legend = [one.get_text() for one in privacy.get_legend().get_texts()]
    assert legend == ["a dot: 1 owner", "a dot: 18 owners", "a dot: 72 owners"]
    assert privacy.get_legend().get_frame_on(), "its dots would be taken for data"
    assert overlapping(canvas) == []


def test_dots_of_one_owner_each_need_no_key(drawn: Any) -> None:
    game = negotiate(Scenario.from_preset("market", owners=4), mechanism="clock")
    canvas = drawn(game, [(0.2 + i / 100, 3.0 + i / 10) for i in range(100)])
    assert canvas.axes[1].get_legend() is None


def test_an_auction_has_two_panels(drawn: Any) -> None:
    game = negotiate(Scenario.from_preset("market", owners=4), mechanism="clock")
    canvas = drawn(game, [(0.66, 16.0)] * 7)
    accuracy, privacy = canvas.axes
    assert "points over no trade by clock auction" in accuracy.get_title(loc="left")
    assert [one.get_text() for one in privacy.texts] == [
        "7 owners\n16.00 each", "93 owners sold nothing",
    ]  # fmt: skip
    assert overlapping(canvas) == []
