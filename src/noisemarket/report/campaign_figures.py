"""The four figures of a comparison: frontier, rounds, who sells, and time to decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from noisemarket.comparison.decisions import NO_TRADE
from noisemarket.comparison.growth import Timing
from noisemarket.comparison.results import QUANTILES, Mean, Row, means
from noisemarket.comparison.significance import half_width
from noisemarket.report.campaign_report import budget_in_words, head_of_mechanism, knows
from noisemarket.report.style import colour_of, direct_labels, figure, label, save

WIDE = (9.0, 4.6)
_MARKS = "osD^vPX*<>hp8dH"


def draw_campaign(folder: Path, rows: Sequence[Row], times: Sequence[Timing]) -> list[Path]:
    """Draw all of them into a folder; gives the files."""
    out = draw_frontier(folder, rows) + draw_rounds(folder, rows) + draw_costs(folder, rows)
    return out + (draw_growth(folder, times) if times else [])


def middle_budget(rows: Sequence[Row]) -> float | None:
    """The budget that figures of one budget show."""
    budgets = list(dict.fromkeys(row.budget for row in rows))
    return budgets[len(budgets) // 2]


def draw_frontier(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Accuracy over money paid: a point per budget, means over the seeds with 95 % intervals."""
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    found = means(rows)
    lines = _lines(found)
    none = next(one for one in found if one.mechanism == NO_TRADE)
    base = _figure(none, "accuracy")
    idle = [name for name, points in lines.items() if all(x == 0 for x, _, _ in points)]
    axis.axhline(base, color="#8a8a8a", linewidth=1.0, linestyle="--")
    ends = {}
    shown = [name for name in lines if name not in idle]
    for name, mark in zip(shown, _marks(), strict=False):
        points = np.array(sorted(lines[name]))
        colour = colour_of(name)
        axis.errorbar(points[:, 0], points[:, 1], points[:, 2], color=colour, marker=mark,
                      markersize=5, linewidth=1.6, capsize=2, elinewidth=0.9)  # fmt: skip
        ends[head_of_mechanism(name)] = float(points[-1, 0]), float(points[-1, 1]), colour
    nothing = ["no trade", *(head_of_mechanism(name) for name in idle if name != NO_TRADE)]
    right = max((x for x, _, _ in ends.values()), default=1.0)
    ends[_listed(nothing)] = right, base, "#6a6a6a"
    axis.set_xlim(left=0.0)
    direct_labels(axis, ends)
    label(axis, _frontier_title(rows, base), "money paid in all", "test accuracy, %")
    return save(canvas, folder, "frontier")


def _frontier_title(rows: Sequence[Row], base: float) -> str:
    """The finding: who brings most for the middle budget without knowing anything private."""
    budget = middle_budget(rows)
    open_ones = [
        one
        for one in means(rows)
        if one.budget == budget and one.mechanism != NO_TRADE
        and knows(one.mechanism).startswith("nothing")
    ]  # fmt: skip
    if not open_ones:
        return "Accuracy over money paid"
    best = max(open_ones, key=lambda one: _figure(one, "accuracy"))
    gain, paid = _figure(best, "accuracy") - base, _figure(best, "paid")
    limit = "without a budget" if budget is None else f"with a budget of {budget:,g}"
    return (
        f"Of those who know nothing private, {head_of_mechanism(best.mechanism)} gains most "
        f"{limit}: {gain:+.1f} points for {paid:,.0f}"
    )


def draw_rounds(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Accuracy over the rounds under the middle budget: means with 95 % intervals."""
    budget = middle_budget(rows)
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    curves: dict[tuple[float, ...], list[str]] = {}
    bands: dict[tuple[float, ...], np.ndarray] = {}
    for name, some in _by_mechanism(rows, budget).items():
        values = np.array([row.accuracy_per_round for row in some])
        mean = tuple(values.mean(axis=0).tolist())
        curves.setdefault(mean, []).append(name)
        bands[mean] = np.array([half_width(list(column)) for column in values.T])
    ends = {}
    for mean, names in curves.items():
        middle, rounds = np.array(mean), np.arange(1, len(mean) + 1)
        colour = "#6a6a6a" if NO_TRADE in names else colour_of(names[0])
        axis.plot(rounds, middle, color=colour, linewidth=1.6)
        width = bands[mean]
        axis.fill_between(
            rounds, middle - width, middle + width, color=colour, alpha=0.15, linewidth=0
        )
        words = _listed([head_of_mechanism(name) for name in names])
        ends[f"{words} {middle[-1]:.1f} %"] = float(rounds[-1]), float(middle[-1]), colour
    last = [y for _, y, _ in ends.values()]
    if (apart := max(last) - min(last)) > 0:
        low = axis.get_ylim()[0]
        axis.set_ylim(max(low, min(last) - 3.0 * apart), max(last) + 0.4 * apart)
    direct_labels(axis, ends)
    best = max(curves, key=lambda mean: mean[-1])
    title = f"{_listed([head_of_mechanism(name) for name in curves[best]])} ends highest"
    label(axis, f"{title} (budget: {budget_in_words(budget)})", "round", "test accuracy, %")
    return save(canvas, folder, "rounds")


def draw_costs(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Who sells: epsilon given up and surplus of an owner, by quantile of its privacy cost."""
    budget = middle_budget(rows)
    canvas, axes = figure(2, size=(6.4, 4.2))
    some = _by_mechanism(rows, budget)
    cheapest: dict[str, float] = {}
    surplus: dict[str, float] = {}
    for axis, column, title, y in (
        (axes[0][0], "epsilon_by_cost", "Privacy sold", "epsilon beyond no trade, mean of owners"),
        (axes[0][1], "surplus_by_cost", "What owners gain", "surplus, mean of owners"),
    ):
        ends: dict[str, tuple[float, float, str]] = {}
        x = np.arange(1, QUANTILES + 1)
        for name, mark in zip(some, _marks(), strict=False):
            values = np.array([getattr(row, column) for row in some[name]], dtype=float)
            middle = values.mean(axis=0)
            if name == NO_TRADE or not np.isfinite(middle).all() or not middle.any():
                continue
            colour = colour_of(name)
            axis.plot(x, middle[::-1], marker=mark, markersize=5, color=colour, linewidth=1.5)
            ends[head_of_mechanism(name)] = float(QUANTILES), float(middle[0]), colour
            if column == "epsilon_by_cost" and middle.sum() > 0:
                cheapest[name] = float(middle[0] / middle.sum())
            if column == "surplus_by_cost":
                surplus[name] = float(middle.mean())
        axis.set_xticks(x, ["dearest\nfifth", "4", "3", "2", "cheapest\nfifth"])
        axis.axhline(0.0, color="#8a8a8a", linewidth=0.8)
        direct_labels(axis, ends)
        label(axis, title, "owners by privacy cost", y)
    if cheapest:
        axes[0][0].set_title(_concentration(cheapest), fontsize=11, loc="left")
    if surplus:
        most = max(surplus, key=lambda name: surplus[name])
        title = f"{_headed(most)} leaves owners most (budget: {budget_in_words(budget)})"
        axes[0][1].set_title(title, fontsize=11, loc="left")
    return save(canvas, folder, "costs")


def _concentration(cheapest: Mapping[str, float]) -> str:
    """Who buys most and who least of its epsilon from the cheapest fifth."""
    least, most = (choose(cheapest, key=lambda name: cheapest[name]) for choose in (min, max))
    first = f"{_headed(most)} buys {100 * cheapest[most]:.0f} % from the cheapest fifth"
    if 100 * (cheapest[most] - cheapest[least]) < 1.0:
        return first
    return f"{first}, {head_of_mechanism(least)} {100 * cheapest[least]:.0f} %"


def _headed(name: str) -> str:
    """A mechanism in words, at the beginning of a sentence."""
    words = head_of_mechanism(name)
    return words[:1].upper() + words[1:]


def draw_growth(folder: Path, times: Sequence[Timing]) -> list[Path]:
    """Processor seconds to decide over the number of owners, both on logarithmic axes."""
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    names = list(dict.fromkeys(one.mechanism for one in times))
    ends = {}
    for name, mark in zip(names, _marks(), strict=False):
        some = [one for one in times if one.mechanism == name]
        owners, seconds = [one.owners for one in some], [max(one.seconds, 1e-5) for one in some]
        colour = colour_of(name)
        axis.plot(owners, seconds, marker=mark, markersize=5, color=colour, linewidth=1.5)
        ends[head_of_mechanism(name)] = float(owners[-1]), seconds[-1], colour
    axis.set_xscale("log")
    axis.set_yscale("log")
    direct_labels(axis, ends)
    title = _growth_title(times)
    label(axis, title, "owners", "processor seconds to decide")
    return save(canvas, folder, "growth")


def _growth_title(times: Sequence[Timing]) -> str:
    """The slowest and the fastest of them for the most owners that all have served."""
    served = [{one.owners for one in times if one.mechanism == name}
              for name in {one.mechanism for one in times}]  # fmt: skip
    most = max(set.intersection(*served), default=min(one.owners for one in times))
    some = [one for one in times if one.owners == most]
    fastest, slowest = (choose(some, key=lambda one: one.seconds) for choose in (min, max))
    first = (
        f"For {most:,} owners {head_of_mechanism(slowest.mechanism)} takes {slowest.seconds:.2g} s"
    )
    if fastest.mechanism == slowest.mechanism:
        return first
    return f"{first}, {head_of_mechanism(fastest.mechanism)} {fastest.seconds:.2g} s"


def _lines(found: Sequence[Mean]) -> dict[str, list[tuple[float, float, float]]]:
    """Of each mechanism a point per budget: paid, accuracy, half width of the accuracy."""
    out: dict[str, list[tuple[float, float, float]]] = {}
    for one in found:
        point = _figure(one, "paid"), _figure(one, "accuracy"), one.half_width.get("accuracy", 0.0)
        out.setdefault(one.mechanism, []).append(point)
    return out


def _by_mechanism(rows: Sequence[Row], budget: float | None) -> Mapping[str, list[Row]]:
    out: dict[str, list[Row]] = {}
    for row in rows:
        if row.budget == budget:
            out.setdefault(row.mechanism, []).append(row)
    return out


def _figure(one: Mean, name: str) -> float:
    value = one.mean[name]
    assert value is not None
    return value


def _listed(names: Sequence[str]) -> str:
    """Names that share a curve; many of them by their number."""
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} others"


def _marks() -> str:
    return _MARKS * 4
