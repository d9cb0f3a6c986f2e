"""Names of curves beside their ends, so that no two overlap and no leader crosses another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = Sequence[float]

FONT = 8.5
WIDEST = 24
"""Letters in a line of a name."""

_EDGE, _PLACE, _TOP = 1.0, 1.03, 0.985
_CROSSING = 100.0
"""Cost of two leaders that cross, in units of a name moved over the whole axis."""


def direct_labels(axis: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write the name of each curve on the right, in its colour, with a line to where it ends.

    ``ends`` has each name's last point and colour. Call it after the limits of the axis are set.
    """
    if not ends:
        return
    axis.get_xlim(), axis.get_ylim()  # limits that follow the curves are set when asked for
    to_axes = axis.transData + axis.transAxes.inverted()
    whole = {name: name.replace(" %", "\N{NO-BREAK SPACE}%") for name in ends}
    shown = {name: "\n".join(wrap(whole[name], WIDEST, break_on_hyphens=False)) for name in ends}
    tall = axis.get_window_extent().height * 72.0 / axis.figure.dpi  # in points
    line = 1.22 * FONT / tall
    placed = [to_axes.transform(ends[name][:2]) for name in ends]
    points = [(float(x), float(y)) for x, y in placed]
    sizes = [line * (shown[name].count("\n") + 1) + 0.25 * line for name in ends]
    for name, (x, y), height in zip(ends, points, heights(points, sizes), strict=True):
        colour = ends[name][2]
        axis.text(
            _PLACE, height, shown[name], transform=axis.transAxes, color=colour, fontsize=FONT,
            va="center", linespacing=1.1,
        )  # fmt: skip
        if x < 0.97 or abs(height - y) > 0.02:
            axis.plot(
                [x, _EDGE if x < 0.97 else x, _PLACE - 0.004],
                [y, height if x < 0.97 else y, height], transform=axis.transAxes,
                color=colour, linewidth=0.6, alpha=0.75, clip_on=False, zorder=1.5,
                scalex=False, scaley=False,
            )  # fmt: skip


def heights(points: Sequence[Point], sizes: Sequence[float]) -> list[float]:
    """Where each name stands, in the order that crosses least: all in parts of the axis.

    ``points`` are the ends of the curves, ``sizes`` the heights of their names.
    """
    best = sorted(range(len(points)), key=lambda one: points[one][1])
    cost, better = _cost(best, points, sizes), True
    while better:
        better = False
        for first, second in combinations(range(len(best)), 2):
            other = best.copy()
            other[first], other[second] = other[second], other[first]
            if (found := _cost(other, points, sizes)) < cost - 1e-9:
                best, cost, better = other, found, True
    places = _placed(best, points, sizes)
    return [places[one] for one in range(len(points))]


def _cost(order: Sequence[int], points: Sequence[Point], sizes: Sequence[float]) -> float:
    places = _placed(order, points, sizes)
    leaders = [(points[one], (_EDGE, places[one])) for one in range(len(points))]
    crossed = sum(crosses(*one, *other) for one, other in combinations(leaders, 2))
    moved = sum(abs(places[one] - points[one][1]) for one in range(len(points)))
    return _CROSSING * crossed + moved


def crosses(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Whether the stretches from a to b and from c to d cross within both of them."""

    def side(p: Point, q: Point, r: Point) -> float:
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    near = 1e-9
    first, second = side(a, b, c) * side(a, b, d), side(c, d, a) * side(c, d, b)
    return first < -near and second < -near


def _placed(
    order: Sequence[int], points: Sequence[Point], sizes: Sequence[float]
) -> dict[int, float]:
    """Names from below in this order, each as near to its curve's end as the others let it.

    Taking the heights of all names below it from each turns "no two overlap" into "none is below
    the one before": isotonic regression, cut to the axis.
    """
    size = np.array([sizes[one] for one in order])
    below = np.cumsum(size) - size / 2.0
    wanted = np.array([points[one][1] for one in order]) - below
    room = max(_TOP - float(size.sum()), 0.0)
    placed = np.clip(isotonic_regression(wanted).x, 0.0, room) + below
    return dict(zip(order, placed.tolist(), strict=True))
