"""The four figures of a comparison: frontier, rounds, who sells, and time to decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noisemarket.comparison.decisions import NO_TRADE
from noisemarket.comparison.growth import Timing
from noisemarket.comparison.results import Row
from noisemarket.comparison.significance import half_width
from noisemarket.report.campaign_report import budget_in_words, head_of_mechanism, listed
from noisemarket.report.cost_figure import draw_costs
from noisemarket.report.curve_labels import direct_labels
from noisemarket.report.frontier_figure import (
    WIDE,
    by_mechanism,
    draw_frontier,
    middle_budget,
    together,
)
from noisemarket.report.style import colour_of, figure, label, look_of, save

_NOTHING = "#6a6a6a"


def draw_campaign(folder: Path, rows: Sequence[Row], times: Sequence[Timing]) -> list[Path]:
    """Draw all of them into a folder; gives the files."""
    budget = middle_budget(rows)
    rounds = [one for one in round_means(rows) if one.budget == budget]
    out = draw_frontier(folder, rows) + draw_rounds(folder, rounds) + draw_costs(folder, rows)
    return out + (draw_growth(folder, times) if times else [])


@dataclass(frozen=True)
class RoundMeans:
    """Accuracy after each round under a mechanism: means over the seeds, and how sure they are."""

    mechanism: str
    budget: float | None
    mean: Sequence[float]
    half_width: Sequence[float]


def round_means(rows: Sequence[Row]) -> list[RoundMeans]:
    """Of every mechanism under every budget."""
    out = []
    for budget in dict.fromkeys(row.budget for row in rows):
        for name, some in by_mechanism(rows, budget).items():
            values = np.array([row.accuracy_per_round for row in some])
            widths = [half_width(list(column)) for column in values.T]
            out.append(RoundMeans(name, budget, values.mean(axis=0).tolist(), widths))
    return out


def draw_rounds(folder: Path, shown: Sequence[RoundMeans]) -> list[Path]:
    """Accuracy over the rounds under one budget: means with 95 % intervals."""
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    last = [one.mean[-1] for one in shown]
    apart = max(max(last) - min(last), 0.1)
    low = max(min(min(one.mean) for one in shown) - 0.1 * apart, min(last) - 2.0 * apart)
    axis.set_ylim(low, max(last) + 0.4 * apart)
    axis.set_xlim(1, max(max(len(one.mean) for one in shown), 2))
    axis.xaxis.get_major_locator().set_params(integer=True)
    by_name = {one.mechanism: one for one in shown}
    paths = {
        name: np.column_stack([np.arange(1, len(one.mean) + 1), one.mean])
        for name, one in by_name.items()
    }
    ends = {}
    for names in together(axis, paths):
        (rounds, middle), width = paths[names[0]].T, np.array(by_name[names[0]].half_width)
        look = look_of(names[0]) | ({"color": _NOTHING} if NO_TRADE in names else {})
        axis.plot(rounds, middle, **(look | {"marker": ""}))
        axis.fill_between(
            rounds, middle - width, middle + width, color=look["color"], alpha=0.1, linewidth=0
        )
        high, least = (f"{end([by_name[name].mean[-1] for name in names]):.1f}"
                       for end in (max, min))  # fmt: skip
        words = listed([head_of_mechanism(name) for name in names])
        values = high if high == least else f"{least} to {high}"
        ends[f"{words} {values} %"] = float(rounds[-1]), float(middle[-1]), look["color"]
    direct_labels(axis, ends)
    label(axis, _rounds_title(shown), "round", "test accuracy, %")
    return save(canvas, folder, "rounds")


def _rounds_title(shown: Sequence[RoundMeans]) -> str:
    """Who ends highest, and after which round it has most of what it gains over no trade."""
    best = max(shown, key=lambda one: one.mean[-1])
    twins = [head_of_mechanism(one.mechanism) for one in shown if one.mean == best.mean]
    none = next((one for one in shown if one.mechanism == NO_TRADE), None)
    limit = (
        "Without a budget"
        if best.budget is None
        else f"With a budget of {budget_in_words(best.budget)}"
    )
    title = f"{limit}, {_few(twins)} ends highest: {best.mean[-1]:.1f} %"
    if none is None or best.mean[-1] <= none.mean[-1]:
        return title
    passed = next(
        number for number, one in enumerate(best.mean, start=1) if one > none.mean[-1]
    )  # fmt: skip
    return f"{title},\nand is past where no trade ends ({none.mean[-1]:.1f} %) after round {passed}"


def draw_growth(folder: Path, times: Sequence[Timing]) -> list[Path]:
    """Processor seconds to decide over the number of owners, both on logarithmic axes."""
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    ends = {}
    for name in dict.fromkeys(one.mechanism for one in times):
        some = [one for one in times if one.mechanism == name]
        owners, seconds = [one.owners for one in some], [max(one.seconds, 1e-5) for one in some]
        axis.plot(owners, seconds, **look_of(name))
        ends[head_of_mechanism(name)] = float(owners[-1]), seconds[-1], colour_of(name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    direct_labels(axis, ends)
    label(axis, _growth_title(times), "owners", "processor seconds to decide")
    return save(canvas, folder, "growth")


def _growth_title(times: Sequence[Timing]) -> str:
    """What is seen on the right: the most owners, who served them, and how long the slowest took.

    A curve that ends before is said to do so, the slowest of them by its last point.
    """
    most = max(one.owners for one in times)
    there = sorted((one for one in times if one.owners == most), key=lambda one: one.seconds)
    first = f"For {most:,} owners {_timed(there[0], 'decides in')}"
    if len(there) > 1:
        first += f", {_timed(there[-1], 'in')}"
    last = {one.mechanism: one for one in times}
    ended = [one for one in last.values() if one.owners < most]
    if not ended:
        return first
    slow = max(ended, key=lambda one: one.seconds / one.owners)
    return f"{first};\n{_timed(slow, 'takes')} for {slow.owners:,}"


def _timed(one: Timing, verb: str) -> str:
    return f"{head_of_mechanism(one.mechanism)} {verb} {one.seconds:.2g} s"


def _few(names: Sequence[str]) -> str:
    """Names that share a curve; many of them by their number."""
    return listed(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} others"
