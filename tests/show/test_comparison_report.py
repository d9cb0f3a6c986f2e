"""Figures of a comparison: titles say what is shown, and all curves are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.results_page import figures as pages

from noisemarket.market.negotiation import negotiate
from noisemarket.scenario import Scenario
from noisemarket.show import comparison_report, negotiation_report
from noisemarket.show.comparison_report import (
    draw_frontier,
    draw_rounds,
    findings,
    trained_table,
)
from noisemarket.show.negotiation_report import draw_curves, game_curves
from noisemarket.show.style import look_of, name_of
from noisemarket.study.results import Row, comparison_document, round_means

ROW = Row(
    mechanism="uniform", budget=100.0, seed=1, paid=0.0, accuracy=90.0, predicted_value=0.0,
    trained_value=0.0, owners_surplus=0.0, social_welfare=0.0, worse_off=0, sellers=0,
    epsilon_sold=0.0, messages=None, seconds=0.1, accuracy_per_round=[80.0, 90.0],
)  # fmt: skip


def cases(**gains: tuple[float, float]) -> list[Row]:
    """Three budgets and seeds; of each mechanism how much it gains, and pays of the budget."""
    out = []
    for budget in (30.0, 100.0, 300.0):
        for seed in (1, 2, 3):
            base = 90.0 + 0.1 * seed
            out.append(replace(ROW, budget=budget, seed=seed, accuracy=base))
            for name, (gain, share) in gains.items():
                more = gain * budget / 100.0 + 0.001 * seed * len(name)
                out.append(
                    replace(
                        ROW, mechanism=name, budget=budget, seed=seed, accuracy=base + more,
                        paid=share * budget, sellers=3, epsilon_sold=budget / 10.0,
                        owners_surplus=gain,
                    )
                )  # fmt: skip
    return out


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that would be saved."""
    out: list[Any] = []
    for module in (comparison_report, negotiation_report, pages):
        monkeypatch.setattr(module, "save", lambda canvas, *_: out.append(canvas) or [])
    return out


def named(axis: Any) -> list[str]:
    """The names of the curves, the highest first."""
    return [text.get_text().replace("\n", " ") for text in axis.get_legend().get_texts()]


def test_a_frontier_names_all_curves_the_highest_first(drawn: list[Any]) -> None:
    draw_frontier(Path(), cases(greedy=(0.0, 0.0), dypp=(1.0, 0.9), clock=(2.0, 0.9)))
    (axis,) = drawn[0].axes
    assert named(axis) == ["clock auction", "DyPP (WoLF-PHC)", "no trade and greedy"]


def test_a_frontier_says_who_gains_most_and_who_is_within_chance() -> None:
    title = pages.frontier_title(
        cases(clock=(2.0, 0.9), dypp=(1.0, 0.9), best_portfolio=(4.0, 0.9))
    )
    assert "With a budget of 100, clock auction gains most" in title, "not who knows all"
    assert "+2.0 points" in title
    assert "less: DyPP (WoLF-PHC) +1.0" in title


def test_equal_gains_stand_in_one_order_in_every_process() -> None:
    equal = dict.fromkeys(("phc", "greedy", "dypp", "bisection", "q_learning"), (1.0, 0.9))
    rows = [replace(row, accuracy=91.0 + 0.1 * row.seed) if row.mechanism in equal else row
            for row in cases(clock=(2.0, 0.9), **equal)]  # fmt: skip
    found = pages.frontier_title(rows).split("less: ")[1]
    given = [found.index(name_of(name)) for name in equal]
    assert given == sorted(given)


def test_what_is_said_below_the_table_is_about_what_is_in_it() -> None:
    apart = findings(cases(clock=(2.0, 0.9), bisection=(1.0, 0.9)))
    assert apart[0].count("*") == 2
    assert apart[-1].startswith("* differs by more than chance")
    within = [replace(row, accuracy=90.0 + row.seed) for row in cases(clock=(2.0, 0.9))]
    noisy = [replace(row, accuracy=90.0 - row.seed % 2) if row.sellers else row for row in within]
    said = findings(noisy)
    assert "*" not in "".join(said)
    assert said[-1].startswith("None of this differs by more than chance")
    both = findings(cases(clock=(2.0, 0.9), bisection=(1.0, 0.9), best_portfolio=(4.0, 0.9)))
    assert both[-1].endswith("perhaps ahead of 'with full knowledge': bisection.")


def test_one_s_own_mechanism_is_not_drawn_as_no_trade() -> None:
    own, none = look_of("mine:Half"), look_of("uniform")
    assert own["color"] != none["color"]
    assert own["linestyle"] != none["linestyle"]


def test_sellers_without_a_bound_are_said_and_open(drawn: list[Any]) -> None:
    rows = [replace(row, epsilon_sold=None) if row.mechanism == "dypp" else row
            for row in cases(clock=(2.0, 0.9), dypp=(1.0, 0.9))]  # fmt: skip
    draw_frontier(Path(), rows)
    (axis,) = drawn[0].axes
    title = axis.get_title(loc="left")
    assert "sellers to DyPP (WoLF-PHC) may have no bound on epsilon" in title
    faces = {line.get_marker(): line.get_markerfacecolor() for line in axis.get_lines()}
    assert faces["P"] == "white"
    assert faces["o"] != "white"


def test_rounds_are_means_over_the_seeds(drawn: list[Any]) -> None:
    rows = [
        replace(ROW, seed=seed, mechanism=name, accuracy_per_round=[70.0 + seed, up + seed])
        for seed in (1, 2)
        for name, up in (("uniform", 80.0), ("greedy", 80.0), ("clock", 85.0))
    ]
    found = round_means(rows)
    assert [one["mechanism"] for one in found] == ["uniform", "greedy", "clock"]
    assert found[2]["mean"] == [71.5, 86.5]
    assert found[2]["half_width"][0] > 0
    draw_rounds(Path(), found, "Rounds")
    (axis,) = drawn[0].axes
    assert named(axis) == ["clock auction 86.5 %", "no trade 81.5 %", "greedy 81.5 %"]


def test_mechanisms_with_the_same_contracts_are_one_row() -> None:
    rows = cases(greedy=(0.0, 0.0), clock=(2.0, 0.9))
    same = [replace(row, messages=5.0, sellers=0, epsilon_sold=0.0, accuracy=90.0 + 0.1 * row.seed)
            if row.mechanism == "greedy" else row for row in rows]  # fmt: skip
    table = trained_table(comparison_document(same))
    assert [*table.columns[0].cells] == ["no trade\ngreedy", "clock auction"] * 3
    heads = [column.header for column in table.columns]
    assert next(iter(table.columns[heads.index("messages")].cells)) == "-\n5"
    assert "\n" not in next(iter(table.columns[heads.index("accuracy")].cells))


@pytest.mark.compiled
@pytest.mark.parametrize("preset", ["market", "paper"])
def test_curves_end_at_what_was_signed(preset: str, drawn: list[Any]) -> None:
    """Gains are over no trade in both presets, though the paper's rewards are whole payoffs."""
    made = Scenario.from_preset(preset, owners=8, surface="printed", iterations=2000)
    results = {name: negotiate(made, mechanism=name, threads=1) for name in ("clock", "greedy")}
    curves = game_curves(results)
    assert [*curves] == ["equilibrium", "greedy"], "a clock does not learn"
    exact, greedy = curves["equilibrium"], curves["greedy"]
    best, signed = results["greedy"].equilibrium, results["greedy"].learned
    np.testing.assert_allclose(exact[:, 1], best.mean_saving)
    np.testing.assert_allclose(exact[:, 2], best.mean_payment)
    np.testing.assert_allclose(exact[:, 3], best.curator_gain)
    expected = [signed.mean_saving, signed.mean_payment, signed.curator_gain]
    np.testing.assert_allclose(greedy[-1, 1:], expected, atol=1e-9)
    draw_curves(Path(), curves, "units")
    panels = drawn[0].axes
    assert len(panels) == 3
    for axis in panels:
        assert [line.get_label() for line in axis.get_lines()] == ["greedy", "exact equilibrium"]
