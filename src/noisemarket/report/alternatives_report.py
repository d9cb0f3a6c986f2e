"""The market of a job beside what else could have been bought: table and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from noisemarket.market.alternatives import FULL_KNOWLEDGE, Alternative
from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM
from noisemarket.market.outcome import MarketOutcome
from noisemarket.market.summary import Compared, deployed
from noisemarket.report.curve_labels import direct_labels
from noisemarket.report.style import colour_of, label, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADS = {UNIFORM: "no trade", FULL_KNOWLEDGE: "with full knowledge", NO_DP: "no noise"}
_COLOURS = {UNIFORM: "#c8641b", NO_DP: "#222222"}


def head_of(one: Alternative) -> str:
    """What an alternative is called."""
    return _head(one.name, one.mechanism)


def _head(name: str, mechanism: str | None) -> str:
    return _HEADS.get(name) or name_of(mechanism or name)


def alternatives_table(summary: Mapping[str, Any]) -> Table:
    """A row for each alternative of a run's summary: what it cost, what it brought, and what both
    sides had of it."""
    heads = {row["name"]: _head(row["name"], row["mechanism"]) for row in summary["alternatives"]}
    draws = max(len(row["accuracies"]) for row in summary["alternatives"])
    of = f", mean of {draws} draws of the noise at most" if draws > 1 else ""
    table = Table(title=f"What the market bought (test accuracy{of})", title_justify="left")
    table.add_column("")
    for name in ("accuracy", "draws", "paid", "sellers", "epsilon sold", "curator's value",
                 "owners' surplus"):  # fmt: skip
        table.add_column(name, justify="right")
    for row in summary["alternatives"]:
        head, same, agreed = heads[row["name"]], row["same_as"], row["mechanism"] is not None
        table.add_row(
            f"[bold]{head}[/bold]" if row["name"] == MARKET else head,
            _number(row["mean_accuracy"], "{:.2f} %"),
            f"as {heads[same]}" if same else _range(row["accuracies"]),
            _number(row["paid"]) if agreed else "",
            str(row["sellers"]) if agreed else "",
            _number(row["epsilon_sold"], "{:,.1f}", "no bound"),
            _number(row["curator_value"]),
            _number(row["owners_surplus"]),
        )
    return table


def draw_accuracies(
    axis: Axes, outcome: MarketOutcome, compared: Compared, others: Sequence[Alternative]
) -> None:
    """A line for the mean over the draws of the noise, a band from the lowest to the highest."""
    runs_of = {**compared, MARKET: [outcome.results, *compared.get(MARKET, [])]}
    mechanism = outcome.negotiation.scenario.mechanism
    names = {one.name: head_of(one) for one in others} or {MARKET: name_of(mechanism)}
    draws, ends, means = 0, {}, {}
    for name, head in names.items():
        runs = runs_of.get(name, [])
        if not runs or not all(runs):
            continue
        draws = max(draws, len(runs))
        colour = _COLOURS.get(name) or colour_of(mechanism if name == MARKET else name)
        rounds = [result.number for result in min(runs, key=len)]
        values = np.array([[deployed(result) for result in run[: len(rounds)]] for run in runs])
        middle = values.mean(axis=0)
        wide = 2.4 if name == MARKET else 1.3
        axis.plot(rounds, middle, color=colour, linewidth=wide)
        if len(runs) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axis.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
        twins = [head_of(one) for one in others if one.same_as == name]
        words = " and ".join([head, *twins])
        ends[f"{words} {middle[-1]:.1f} %"] = rounds[-1], float(middle[-1]), colour
        means[name] = float(middle[-1])
    _to_the_point(axis, list(means.values()))
    direct_labels(axis, ends)
    title = "Test accuracy"
    if {UNIFORM, MARKET} <= means.keys():
        title = f"{name_of(mechanism)}: {means[MARKET] - means[UNIFORM]:+.1f} points over no trade"
    title += f" (mean and range of {draws} draws)" if draws > 1 else ""
    label(axis, title, "round", "test accuracy, %")


def _to_the_point(axis: Axes, ends: Sequence[float]) -> None:
    """Show where the curves end; the first rounds, far below, come in from the lower edge."""
    if ends and (apart := max(ends) - min(ends)) > 0:
        low, high = axis.get_ylim()
        bottom = max(low, min(ends) - 2.5 * apart)
        axis.set_ylim(bottom, min(high, max(ends) + 0.3 * apart))


def _number(value: float | None, form: str = "{:,.2f}", missing: str = "") -> str:
    return missing if value is None else form.format(value)


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = f"{min(known):.1f}", f"{max(known):.1f}"
    return low if low == high else f"{low} to {high}"
