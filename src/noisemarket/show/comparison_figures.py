"""Figures of a comparison: bars of the game alone; accuracy over money and over the rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.show.comparison_report import (
    by_mechanism,
    head_of_mechanism,
    listed,
    middle_budget,
    under_budget,
)
from noisemarket.show.curve_labels import direct_labels
from noisemarket.show.style import colour_of, figure, label, look_of, name_of, save
from noisemarket.study.results import NO_TRADE, Mean, Row, half_width, means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = (
    ("mean_saving", "saving"),
    ("mean_payment", "payment"),
    ("mean_owner_payoff", "owner's payoff"),
    ("curator_gain", "curator's gain"),
    ("model_quality", "quality of the model, %"),
    ("joint_gain", "value of the model, gain"),
)
WIDE = (9.0, 4.8)
_BESIDE = 6.0
"""Points (1/72 inch) that a curve may lie beside another to be drawn as one: a marker's width."""

_SHORTER = 20.0
"""Points by which it may end sooner."""

Points = NDArray[np.float64]
"""A row per budget: paid, accuracy, half width of its interval."""

_NOTHING = "#6a6a6a"


def draw_game(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """A panel of bars for each figure, a bar for each mechanism, of a comparison without training.

    A bar far beyond all others is cut off, and its value written on it.
    """
    canvas, axes = figure(len(_PANELS), size=(2.7, 0.28 * len(rows) + 1.0))
    names = [row["mechanism"] for row in rows]
    for axis, (column, title) in zip(axes[0], _PANELS, strict=True):
        values = [float(row[column]) for row in rows]
        axis.barh(range(len(rows)), values, color=[colour_of(name) for name in names], height=0.7)
        axis.set_yticks(range(len(rows)), [name_of(name) for name in names])
        axis.tick_params(axis="y", length=0, labelleft=axis is axes[0][0])
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        if (end := _cut_at(values)) is not None:
            far, side = max(values, key=abs), "right" if end > 0.0 else "left"
            axis.set_xlim(**{side: end})
            place = end, values.index(far)
            axis.annotate(f" {far:.3g} ", place, ha=side, va="center", color="white", fontsize=8)
        label(axis, title, "", "")
    return save(canvas, folder, "comparison")


def _cut_at(values: Sequence[float]) -> float | None:
    """End of an axis on which one value is far beyond all others; None if there is none such."""
    far, *others = sorted(values, key=abs, reverse=True)
    longest = max(map(abs, others), default=0.0)
    return math.copysign(1.25 * longest, far) if abs(far) > 3.0 * longest > 0.0 else None


def draw_trained(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """The frontier, and the rounds under the middle budget, of a comparison with training."""
    budget = middle_budget(rows)
    rounds = [one for one in round_means(rows) if one.budget == budget]
    title = f"{under_budget(budget)}, accuracy over the rounds"
    return draw_frontier(folder, rows) + draw_rounds(folder, rounds, title)


def draw_frontier(
    folder: Path, rows: Sequence[Row], title: str = "Accuracy over money paid"
) -> list[Path]:
    """Accuracy over money paid: a point per budget, means over the seeds with 95 % intervals.

    Curves that cannot be told apart are drawn as one and named together. Markers are open where
    some seller is left without any bound on epsilon.
    """
    canvas, axes = figure(1, size=WIDE)
    axis = axes[0][0]
    found = means(rows)
    base = known(next(one for one in found if one.mechanism == NO_TRADE), "accuracy")
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
        point = known(one, "paid"), known(one, "accuracy"), one.half_width.get("accuracy", 0.0)
        out.setdefault(one.mechanism, []).append(point)
    return {name: np.array(sorted(points)) for name, points in out.items()}


def known(one: Mean, name: str) -> float:
    """A mean that every case has."""
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


def draw_rounds(folder: Path, shown: Sequence[RoundMeans], title: str) -> list[Path]:
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
    label(axis, title, "round", "test accuracy, %")
    return save(canvas, folder, "rounds")
