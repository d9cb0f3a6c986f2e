"""Figures of the stored campaign that only the pages show, and titles that say what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.campaign import Timing
from noisemarket.show.comparison_figures import WIDE, RoundMeans, known
from noisemarket.show.comparison_report import (
    budget_in_words,
    by_mechanism,
    head_of_mechanism,
    knows,
    listed,
    middle_budget,
    under_budget,
)
from noisemarket.show.curve_labels import direct_labels
from noisemarket.show.style import colour_of, figure, label, look_of, save
from noisemarket.study.results import NO_TRADE, QUANTILES, Row, means, paired_differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADES = ("#08306b", "#e08214", "#41ab5d", "#bcbddc", "#737373")
_FIFTHS = ("the cheapest fifth", "the second", "the third", "the fourth", "the dearest fifth")
_LITTLE = 0.005
"""A share of what is sold that is no sale worth a bar."""

Parts = Mapping[str, NDArray[np.float64]]
"""Mechanism to what each fifth has, mean of its owners and of the seeds; NaN without bound."""


def draw_costs(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Two bars for each mechanism under the middle budget, in parts by fifths of the owners."""
    budget = middle_budget(rows)
    sold = parts_of(rows, budget, "epsilon_by_cost")
    gained = parts_of(rows, budget, "surplus_by_cost")
    active = [name for name in sold if sold[name].any() or gained[name].any()]
    sold, gained = ({name: parts[name] for name in active} for parts in (sold, gained))
    canvas, axes = figure(2, size=(5.4, 1.7 + 0.34 * max(len(active), 2)))
    fifths = selling_fifths([*sold.values(), *gained.values()])
    for axis, parts, title, x in (
        (axes[0][0], sold, sold_title(sold), "epsilon sold, mean over all owners"),
        (axes[0][1], gained, gained_title(gained, budget), "surplus, mean over all owners"),
    ):
        _bars(axis, {name: part / QUANTILES for name, part in parts.items()}, fifths)
        label(axis, "", x, "")
        axis.set_title(title, fontsize=10, loc="left")
    axes[0][1].set_yticklabels([])
    if fifths and active:
        canvas.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=len(fifths), frameon=False, fontsize=9,
                      title=_rest_in_words(fifths), title_fontsize=9)  # fmt: skip
    return save(canvas, folder, "costs")


def parts_of(rows: Sequence[Row], budget: float | None, column: str) -> Parts:
    """Means over the seeds of each fifth, for all mechanisms but no trade."""
    out = {}
    for name, some in by_mechanism(rows, budget).items():
        if name != NO_TRADE:
            values = np.array([getattr(row, column) for row in some], dtype=float)
            out[name] = values.mean(axis=0)
    return out


def selling_fifths(parts: Sequence[NDArray[np.float64]]) -> list[int]:
    """The fifths that have a part of any bar that can be seen, cheapest first."""
    seen = set()
    for one in parts:
        whole = np.nansum(np.abs(one))
        big = np.isnan(one) | (np.abs(one) > _LITTLE * whole if whole > 0 else False)
        seen |= set(np.flatnonzero(big).tolist())
    return sorted(seen)


def _bars(axis: Axes, parts: Parts, fifths: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    names = list(parts)[::-1]
    left = np.zeros(len(names))
    for fifth in fifths:
        wide = np.array([parts[name][fifth] for name in names])
        bounded = np.nan_to_num(wide)
        axis.barh(range(len(names)), bounded, left=left, height=0.62, color=_SHADES[fifth],
                  label=_FIFTHS[fifth])  # fmt: skip
        left = left + bounded
    reach = max(left.max(initial=0.0), 1e-9)
    for at, name in enumerate(names):
        whole, known = float(np.nansum(parts[name])), np.isfinite(parts[name]).all()
        axis.text(left[at] + 0.015 * reach, at, f"{whole:#.2g}" if known else "no bound",
                  va="center", fontsize=8.5, color="#333333")  # fmt: skip
    axis.set_xlim(right=1.14 * reach)
    axis.xaxis.set_major_locator(MaxNLocator(5, prune="upper"))
    axis.set_yticks(range(len(names)), [head_of_mechanism(name) for name in names])
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


def _rest_in_words(fifths: Sequence[int]) -> str:
    """Which owners sell; those that do not are said in words."""
    others = QUANTILES - len(fifths)
    who = "Owners by their privacy cost"
    if not others:
        return who
    rest = "the other fifth sells" if others == 1 else f"the other {others} fifths sell"
    return f"{who}; {rest} next to nothing to anybody"


def sold_title(sold: Parts) -> str:
    """How much of the epsilon is that of the cheapest fifth."""
    shares = {
        name: float(one[0] / one.sum())
        for name, one in sold.items()
        if np.isfinite(one).all() and one.sum() > 0
    }
    if not shares:
        return "Privacy sold"
    least, most = (choose(shares, key=lambda name: shares[name]) for choose in (min, max))
    high, low = (f"{100 * shares[name]:.0f}" for name in (most, least))
    if high == low:
        return f"The cheapest fifth of owners sells\n{high} % of all epsilon, whoever buys"
    return (
        f"The cheapest fifth of owners sells {low} %\n({head_of_mechanism(least)}) to {high} % of "
        "the epsilon"
    )


def gained_title(gained: Parts, budget: float | None) -> str:
    """Who leaves owners most and who least, by the whole of the bars."""
    whole = {name: float(one.mean()) for name, one in gained.items() if np.isfinite(one).all()}
    limit = f"(budget: {budget_in_words(budget)})"
    if not whole:
        return f"What owners gain {limit}"
    high, low = max(whole.values()), min(whole.values())
    most, least = (
        listed([head_of_mechanism(name) for name in whole if f"{whole[name]:.2g}" == f"{end:.2g}"])
        for end in (high, low)
    )
    first = f"{most[:1].upper()}{most[1:]}"
    verb = "leave" if " and " in most else "leaves"
    if most == least:
        return f"{first} {verb} owners {high:.2g}\n{limit}"
    return f"{first} {verb} owners most,\n{least} least {limit}"


def frontier_title(rows: Sequence[Row]) -> str:
    """The finding: who brings most for the middle budget without knowing anything private."""
    budget, found = middle_budget(rows), means(rows)
    base = known(next(one for one in found if one.mechanism == NO_TRADE), "accuracy")
    gains = {
        one.mechanism: known(one, "accuracy") - base
        for one in found
        if one.budget == budget and one.mechanism != NO_TRADE
        and knows(one.mechanism).startswith("nothing")
    }  # fmt: skip
    if not gains:
        return "Accuracy over money paid"
    best = max(gains, key=lambda name: gains[name])
    first = (
        f"{under_budget(budget)}, {head_of_mechanism(best)} gains most of those who know nothing "
        f"private: {gains[best]:+.1f} points"
    )
    tested = [one for one in paired_differences(rows)
              if one.budget == budget and one.p_corrected is not None]  # fmt: skip
    if not tested:
        return first
    behind = {one.first if one.second == best else one.second
              for one in tested if best in (one.first, one.second) and one.significant}  # fmt: skip
    near = [head_of_mechanism(name) for name in gains if name != best and name not in behind]
    less = [f"{head_of_mechanism(name)} {gains[name]:+.1f}"
            for name in sorted(behind & gains.keys(), key=lambda name: -gains[name])]  # fmt: skip
    parts = [f"within chance of it: {listed(near)}"] if near else []
    parts += [f"less: {listed(less)}"] if less else []
    return f"{first};\n{'; '.join(parts)}" if parts else first


def rounds_title(shown: Sequence[RoundMeans]) -> str:
    """Who ends highest, and after which round it has most of what it gains over no trade."""
    best = max(shown, key=lambda one: one.mean[-1])
    twins = [head_of_mechanism(one.mechanism) for one in shown if one.mean == best.mean]
    none = next((one for one in shown if one.mechanism == NO_TRADE), None)
    last = f"{best.mean[-1]:.1f} %"
    title = f"{under_budget(best.budget)}, {_few(twins)} ends highest: {last}"
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
