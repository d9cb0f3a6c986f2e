"""Mechanisms side by side: on one population without training, and through to the model.

Tables for the screen, sentences on what is more than chance, and the figures: curves over the
iterations of the game; accuracy over money (the frontier) and over the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisemarket.ledger.money import UNITS
from noisemarket.market.negotiation import Negotiation
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.convergence import Recovery
from noisemarket.show.negotiation_report import recovered
from noisemarket.show.style import (
    IDLE,
    figure,
    label,
    listed,
    look_of,
    name_curves,
    name_of,
    save,
    shown,
    table_of,
)
from noisemarket.study.results import (
    LEVEL,
    NO_TRADE,
    Difference,
    MeanRow,
    Row,
    means,
    pair_of,
    paired_differences,
    round_means,
    same_contracts,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN = "clock"
"""The mechanism that the findings compare all others with, if it is among them."""

BEST = "best_portfolio"

GAME_COLUMNS = (
    *("mechanism", "knows", "mean_saving", "mean_payment", "mean_owner_payoff"),
    *("mean_curator_payoff", "curator_gain", "mean_quality", "total_payment", "model_quality"),
    *("predicted_value", "sellers", "owners_surplus", "signed_share", "converged_at"),
    *("exploitability", "recovery"),
)
_GAME_CELLS = (
    ("mean_saving", "saving", "{:.3f}"),
    ("mean_payment", "payment", "{:.2f}"),
    ("mean_owner_payoff", "owner", "{:.3f}"),
    ("curator_gain", "curator", "{:.3f}"),
    ("model_quality", "model %", "{:.1f}"),
    ("predicted_value", "value", "{:.1f}"),
    ("signed_share", "signed", "{:.0%}"),
    ("converged_at", "settled", "{:,}"),
    ("exploitability", "exploit.", "{:.3f}"),
)
_TRAINED_CELLS = (
    ("paid", "paid", "{:,.1f}"),
    ("accuracy", "accuracy", "{:.2f} %"),
    ("predicted_value", "predicted", "{:,.1f}"),
    ("trained_value", "trained", "{:,.1f}"),
    ("owners_surplus", "owners", "{:,.1f}"),
    ("social_welfare", "welfare", "{:,.0f}"),
    ("worse_off", "worse off", "{:g}"),
    ("messages", "messages", "{:,.0f}"),
    ("seconds", "seconds", "{:.2g}"),
)
"""Field, head and format of each column on the screen."""

WIDE = (9.0, 4.8)
Points = NDArray[np.float64]
"""A row per budget: paid, accuracy, half width of its interval."""

_NARROW: dict[str, Any] = {
    "box": SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0), "wrap": False,
}  # fmt: skip


def knows(name: str) -> str:
    """The knowledge that a mechanism needs."""
    return MECHANISMS[name].knows if name in MECHANISMS else ""


def budget_in_words(budget: float | None) -> str:
    """The cell of a budget."""
    return "no limit" if budget is None else f"{budget:,g}"


def under_budget(budget: float | None) -> str:
    """The beginning of a sentence about one budget."""
    return "Without a budget" if budget is None else f"With a budget of {budget:,g}"


def middle_budget(rows: Sequence[Row]) -> float | None:
    """The budget that figures of one budget show."""
    budgets = list(dict.fromkeys(row.budget for row in rows))
    return budgets[len(budgets) // 2]


def game_rows(results: Mapping[str, Negotiation]) -> list[dict[str, Any]]:
    """One record per mechanism; ``recovery`` says how it recovered from each change."""
    rows = []
    for name, result in results.items():
        summary = result.outcome()
        summary["sellers"] = int(result.agreement.contracts.signed.sum())
        row: dict[str, Any] = {"mechanism": name, "knows": find_mechanism(name).knows}
        row |= {column: summary[column] for column in GAME_COLUMNS[2:-1]}
        row["recovery"] = [vars(recovery) for recovery in result.recoveries]
        rows.append(row)
    return rows


def game_table(rows: Sequence[Mapping[str, Any]], currency: str = UNITS) -> Table:
    """The same for the screen: owner's payoff, curator's gain in the paper's game, the quality of
    the one model, its value to the curator over no trade, and the share of signed contracts."""
    changed = any(row["recovery"] for row in rows)
    heads = [head for _, head, _ in _GAME_CELLS] + ["recovers in"] * changed
    title = f"Mechanisms on one population, means per owner; money in {currency}"
    table = table_of(title, "mechanism", *heads, **_NARROW)
    for row in rows:
        cells = [shown(row[name], form) for name, _, form in _GAME_CELLS]
        if changed:
            times = [recovered(Recovery(**one)) for one in row["recovery"]]
            cells.append(", ".join(times) or "-")
        table.add_row(name_of(row["mechanism"]), *cells)
    return table


def game_csv_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[object]]:
    """The same for ``comparison.csv``: the iterations of each recovery in one cell."""
    for row in rows:
        times = (one["iterations"] for one in row["recovery"])
        words = " ".join("never" if time is None else str(time) for time in times)
        yield [*(row[column] for column in GAME_COLUMNS[:-1]), words]


def trained_table(document: Mapping[str, Any]) -> Table:
    """Means over the seeds, by mechanism and budget; accuracy with its 95 % interval.

    Mechanisms that signed the same contracts in every seed are one row, with a line for each where
    they differ.
    """
    rows: Sequence[MeanRow] = document["means"]
    seeds = max((one["seeds"] for one in rows), default=0)
    title = f"Mechanisms on the same owners and data, means of {_seeds(seeds)}; money in "
    title += document.get("currency", UNITS)
    table = table_of(title, "mechanism", "budget", *(h for _, h, _ in _TRAINED_CELLS), **_NARROW)
    pairs = {tuple(pair) for pair in document["same_contracts"]}
    for budget in dict.fromkeys(one["budget"] for one in rows):
        groups: list[list[MeanRow]] = []
        for one in (row for row in rows if row["budget"] == budget):
            for group in groups:
                if pair_of(budget, group[0]["mechanism"], one["mechanism"]) in pairs:
                    group.append(one)
                    break
            else:
                groups.append([one])
        for group in groups:
            names = "\n".join(name_of(one["mechanism"]) for one in group)
            columns = zip(*map(_trained_cells, group), strict=True)
            cells = (some[0] if len(set(some)) == 1 else "\n".join(some) for some in columns)
            table.add_row(names, budget_in_words(budget), *cells)
        table.add_section()
    return table


def _trained_cells(one: MeanRow) -> list[str]:
    cells = {name: shown(one[name], form) for name, _, form in _TRAINED_CELLS}
    if one["accuracy_half_width"]:
        cells["accuracy"] += f" ± {one['accuracy_half_width']:.2f}"
    return [*cells.values()]


def findings(rows: Sequence[Row]) -> list[str]:
    """How the clock auction (or the first mechanism) differs from every other, in sentences."""
    names = list(dict.fromkeys(row.mechanism for row in rows))
    own = OWN if OWN in names else next((name for name in names if name != NO_TRADE), NO_TRADE)
    found = paired_differences(rows)
    out = []
    for budget in dict.fromkeys(row.budget for row in rows):
        some = [one for one in found if one.budget == budget and own in (one.first, one.second)]
        words = [_difference(one, own) for one in some]
        if words:
            own_name = name_of(own)
            out.append(f"{under_budget(budget)}, accuracy of the {own_name}: {'; '.join(words)}.")
    if any(one.p is not None for one in found):
        same = len(same_contracts(rows))
        left_out = f"; {same} pairs that bought the same are left out" if same else ""
        marked = any("*" in words for words in out)
        out.append(
            f"{'*' if marked else 'None of this'} differs by more than chance (paired t-test over "
            f"the seeds, Holm's correction for {len(found)} comparisons, {100 * LEVEL:g} %"
            f"{left_out})."
        )
    by_owner = [name for name in names if name in MECHANISMS and not MECHANISMS[name].joint]
    freer = [name_of(name) for name in by_owner if name != NO_TRADE]
    if BEST in names and freer:
        out.append(
            f"Not bound to market.floor, so perhaps ahead of '{name_of(BEST)}': {listed(freer)}."
        )
    return out


def _difference(one: Difference, own: str) -> str:
    points, other = (one.points, one.second) if one.first == own else (-one.points, one.first)
    mark = "*" if one.significant else ""
    return f"{points:+.2f}{mark} against {name_of(other)}"


def draw_trained(folder: Path, rows: Sequence[Row], currency: str = UNITS) -> list[Path]:
    """The frontier, and the rounds under the middle budget, of a comparison with training."""
    budget = middle_budget(rows)
    rounds = [one for one in round_means(rows) if one["budget"] == budget]
    title = f"{under_budget(budget)}, accuracy over the rounds"
    return draw_frontier(folder, rows, currency=currency) + draw_rounds(folder, rounds, title)


def draw_frontier(
    folder: Path,
    rows: Sequence[Row],
    title: str = "Accuracy over money paid",
    currency: str = UNITS,
) -> list[Path]:
    """Accuracy over money paid: a point per budget, means over the seeds with 95 % intervals.

    Markers are open where some seller is left without any bound on epsilon.
    """
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    found = means(rows)
    base = next(one["accuracy"] for one in found if one["mechanism"] == NO_TRADE)
    lines = _lines(found)
    idle = [NO_TRADE, *(name for name in lines if name != NO_TRADE and not lines[name][:, 0].any())]
    bought = {name: points for name, points in lines.items() if name not in idle}
    _limits(axis, [*bought.values(), np.array([[0.0, base, 0.0]])])
    named = listed([name_of(name) for name in idle])
    axis.axhline(base, color=IDLE, linewidth=1.0, linestyle="--", label=named)
    boundless = list(dict.fromkeys(row.mechanism for row in rows if row.epsilon_sold is None))
    for name, points in bought.items():
        look = look_of(name)
        face = "white" if name in boundless else look["color"]
        axis.errorbar(points[:, 0], points[:, 1], points[:, 2], **look, markerfacecolor=face,
                      capsize=2, elinewidth=0.9, label=name_of(name))  # fmt: skip
    name_curves(axis)
    if boundless:
        sellers = f"sellers to {listed([name_of(name) for name in boundless])}"
        title += f"\nOpen markers: {sellers} may have no bound on epsilon"
    x = f"paid in all, {currency} (a point for each budget)"
    label(axis, title, x, "test accuracy, %")
    return save(canvas, folder, "frontier")


def _limits(axis: Axes, lines: Sequence[Points]) -> None:
    """Room for every point with its interval, from no money on.

    Intervals of very few seeds may be many times as wide as all points are apart: they are cut.
    """
    points = np.concatenate(lines)
    least, most = points[:, 1].min(), points[:, 1].max()
    far = max(most - least, 0.1)
    low = max((points[:, 1] - points[:, 2]).min(), least - far)
    high = min((points[:, 1] + points[:, 2]).max(), most + far)
    room = 0.05 * max(high - low, 0.1)
    axis.set_xlim(0.0, 1.05 * max(points[:, 0].max(), 1.0))
    axis.set_ylim(low - room, high + room)


def _lines(found: Sequence[MeanRow]) -> dict[str, Points]:
    """The points of each mechanism, least money first."""
    out: dict[str, list[tuple[float, float, float]]] = {}
    for one in found:
        point = one["paid"], one["accuracy"], one["accuracy_half_width"]
        out.setdefault(one["mechanism"], []).append(point)
    return {name: np.array(sorted(points)) for name, points in out.items()}


def draw_rounds(folder: Path, shown: Sequence[MeanRow], title: str) -> list[Path]:
    """Accuracy over the rounds under one budget: means with 95 % intervals."""
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    curves = {one["mechanism"]: np.array(one["mean"]) for one in shown}
    last = [float(curve[-1]) for curve in curves.values()]
    apart = max(max(last) - min(last), 0.1)
    low = max(min(curve.min() for curve in curves.values()) - 0.1 * apart, min(last) - 2.0 * apart)
    axis.set_ylim(low, max(last) + 0.4 * apart)
    axis.set_xlim(1, max(*map(len, curves.values()), 2))
    axis.xaxis.get_major_locator().set_params(integer=True)
    for one in shown:
        name, middle, width = one["mechanism"], curves[one["mechanism"]], one["half_width"]
        look = look_of(name) | {"marker": ""}
        rounds = np.arange(1, len(middle) + 1)
        axis.plot(rounds, middle, **look, label=name_of(name))
        axis.fill_between(
            rounds, middle - width, middle + width, color=look["color"], alpha=0.1, linewidth=0
        )
    name_curves(axis, "{:.1f} %")
    label(axis, title, "round", "test accuracy, %")
    return save(canvas, folder, "rounds")


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
