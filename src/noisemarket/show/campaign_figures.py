"""Figures of a comparison: accuracy over money (the frontier) and over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noisemarket.show.campaign_report import (
    by_mechanism,
    head_of_mechanism,
    knows,
    listed,
    middle_budget,
    under_budget,
)
from noisemarket.show.cost_figure import draw_costs
from noisemarket.show.curve_labels import direct_labels
from noisemarket.show.style import colour_of, figure, label, look_of, save
from noisemarket.study.results import NO_TRADE, Mean, Row, half_width, means, paired_differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = (9.0, 4.8)
_BESIDE = 6.0
"""Points (1/72 inch) that a curve may lie beside another to be drawn as one: a marker's width."""

_SHORTER = 20.0
"""Points by which it may end sooner."""

Points = NDArray[np.float64]
"""A row per budget: paid, accuracy, half width of its interval."""

_NOTHING = "#6a6a6a"


def draw_campaign(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Draw all of them into a folder; gives the files."""
    budget = middle_budget(rows)
    rounds = [one for one in round_means(rows) if one.budget == budget]
    return draw_frontier(folder, rows) + draw_rounds(folder, rounds) + draw_costs(folder, rows)


def draw_frontier(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Accuracy over money paid: a point per budget, means over the seeds with 95 % intervals.

    Curves that cannot be told apart are drawn as one and named together. Markers are open where
    some seller is left without any bound on epsilon.
    """
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    found = means(rows)
    base = _value(next(one for one in found if one.mechanism == NO_TRADE), "accuracy")
    lines = _lines(found)
    idle = [name for name, points in lines.items() if not points[:, 0].any()]
    shown = {name: points for name, points in lines.items() if name not in idle}
    _limits(axis, [*shown.values(), np.array([[0.0, base, 0.0]])])
    axis.axhline(base, color="#8a8a8a", linewidth=1.0, linestyle="--")
    ends = {}
    boundless = list(dict.fromkeys(row.mechanism for row in rows if row.epsilon_sold is None))
    for names in together(axis, shown):
        points, look = shown[names[0]], look_of(names[0])
        face = "white" if any(name in boundless for name in names) else look["color"]
        axis.errorbar(points[:, 0], points[:, 1], points[:, 2], **look, markerfacecolor=face,
                      capsize=2, elinewidth=0.9)  # fmt: skip
        words = listed([head_of_mechanism(name) for name in names])
        ends[words] = float(points[-1, 0]), float(points[-1, 1]), colour_of(names[0])
    nothing = ["no trade", *(head_of_mechanism(name) for name in idle if name != NO_TRADE)]
    ends[listed(nothing)] = axis.get_xlim()[1], base, _NOTHING
    direct_labels(axis, ends)
    title = frontier_title(rows)
    if boundless:
        sellers = f"sellers to {listed([head_of_mechanism(name) for name in boundless])}"
        title += f"\nOpen markers: {sellers} may have no bound on epsilon"
    label(axis, title, "money paid in all (a point for each budget)", "test accuracy, %")
    return save(canvas, folder, "frontier")


def together(axis: Axes, shown: Mapping[str, Points]) -> list[list[str]]:
    """Mechanisms whose curves cannot be told apart as drawn, each group by itself."""
    scale = 72.0 / axis.figure.dpi
    paths = {name: scale * axis.transData.transform(points[:, :2])
             for name, points in shown.items()}  # fmt: skip
    groups: list[list[str]] = []
    for name in sorted(shown, key=lambda name: -shown[name][-1, 0]):  # the longest first
        for group in groups:
            if _on(paths[name], paths[group[0]]):
                group.append(name)
                break
        else:
            groups.append([name])
    order = list(shown)
    groups = [sorted(group, key=order.index) for group in groups]
    return sorted(groups, key=lambda group: order.index(group[0]))


def _on(one: Points, other: Points) -> bool:
    """Whether all points of a path lie on another, which ends where it does or shortly after."""
    if len(one) != len(other) or np.linalg.norm(one[-1] - other[-1]) > _SHORTER:
        return False
    return all(_distance(point, other) <= _BESIDE for point in one)


def _distance(point: Points, path: Points) -> float:
    starts, along = path[:-1], np.diff(path, axis=0)
    if not len(along):
        return float(np.linalg.norm(point - path[0]))
    lengths = np.maximum((along**2).sum(axis=1), 1e-12)
    share = np.clip(((point - starts) * along).sum(axis=1) / lengths, 0.0, 1.0)
    return float(np.linalg.norm(starts + share[:, None] * along - point, axis=1).min())


def frontier_title(rows: Sequence[Row]) -> str:
    """The finding: who brings most for the middle budget without knowing anything private."""
    budget, found = middle_budget(rows), means(rows)
    base = _value(next(one for one in found if one.mechanism == NO_TRADE), "accuracy")
    gains = {
        one.mechanism: _value(one, "accuracy") - base
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


def _lines(found: Sequence[Mean]) -> dict[str, Points]:
    """The points of each mechanism, least money first."""
    out: dict[str, list[tuple[float, float, float]]] = {}
    for one in found:
        point = _value(one, "paid"), _value(one, "accuracy"), one.half_width.get("accuracy", 0.0)
        out.setdefault(one.mechanism, []).append(point)
    return {name: np.array(sorted(points)) for name, points in out.items()}


def _value(one: Mean, name: str) -> float:
    value = one.mean[name]
    assert value is not None
    return value


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
    last = f"{best.mean[-1]:.1f} %"
    title = f"{under_budget(best.budget)}, {_few(twins)} ends highest: {last}"
    if none is None or best.mean[-1] <= none.mean[-1]:
        return title
    passed = next(
        number for number, one in enumerate(best.mean, start=1) if one > none.mean[-1]
    )  # fmt: skip
    return f"{title},\nand is past where no trade ends ({none.mean[-1]:.1f} %) after round {passed}"


def _few(names: Sequence[str]) -> str:
    """Names that share a curve; many of them by their number."""
    return listed(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} others"
