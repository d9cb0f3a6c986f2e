"""One look for all figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import wrap as wrapped
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noisemarket.files import not_written, write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

_SOLID, _DASHED, _DOTTED, _BOTH = "-", (0, (5, 1.6)), (0, (1.4, 1.2)), (0, (6, 1.4, 1.4, 1.4))


class Look(NamedTuple):
    """Name and drawing style of a mechanism in every figure."""

    name: str
    colour: str
    mark: str
    dashes: Any = _SOLID


LOOKS = {
    "dypp": Look("DyPP (WoLF-PHC)", "#0064cb", "P", _DASHED),
    "q_learning": Look("Q-learning", "#b74900", "X", _BOTH),
    "greedy": Look("greedy", "#7e9639", "<"),
    "phc": Look("hill-climbing", "#8872d3", ">", _DOTTED),
    "bisection": Look("bisection", "#672699", "v"),
    "clock": Look("clock auction", "#1f825f", "o"),
    "pain_fl": Look("Pain-FL menu", "#d35792", "^", _DOTTED),
    "pac_auction": Look("PAC auction", "#4899c9", "h", _BOTH),
    "csra_auction": Look("CSRA auction", "#56340d", "s", _DASHED),
    "posted_price": Look("posted price", "#007775", "D", _DOTTED),
    "equilibrium": Look("exact equilibrium", "#121211", "p", _DASHED),
    "first_best": Look("first best", "#635155", "d", _DOTTED),
    "best_portfolio": Look("with full knowledge", "#b38f00", "*", _BOTH),
}
"""Colours were searched so that any two stay apart for protans and deutans too:
tests/show/test_colours.py."""

_UNDRAWN = {"uniform": "no trade", "uniform_dp": "no trade", "no_dp": "no noise"}


def _look(mechanism: str) -> Look:
    name = _UNDRAWN.get(mechanism, mechanism.replace("_", " "))
    return LOOKS.get(mechanism, Look(name, "#444444", "x"))


def name_of(mechanism: str) -> str:
    """A mechanism in words."""
    return _look(mechanism).name


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def colour_of(mechanism: str) -> str:
    """The colour of a mechanism in every figure."""
    return _look(mechanism).colour


def look_of(mechanism: str) -> dict[str, Any]:
    """Colour, marker and dashes of a mechanism's curve, as Matplotlib's ``plot`` takes them."""
    look = _look(mechanism)
    return {
        "color": look.colour,
        "marker": look.mark,
        "linestyle": look.dashes,
        "markersize": 8 if look.mark == "*" else 5.5,
        "linewidth": 1.6,
    }


def table_of(
    title: str | None, words: str | Sequence[str], *numbers: str, wrap: bool = True, **more: Any
) -> Table:
    """A table with columns of words first, and then columns of numbers."""
    from rich.table import Table  # slow to import, and --json shows none

    table = Table(title=title, title_justify="left", **more)
    for head in [words] if isinstance(words, str) else words:
        table.add_column(head, no_wrap=not wrap)
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=not wrap)
    return table


def shown(value: float | None, form: str = "{:.4g}", missing: str = "-") -> str:
    """A number for a table, or what stands for one that is missing."""
    return missing if value is None else form.format(value)


def figure(columns: int, rows: int = 1, size: tuple[float, float] = (4.6, 3.4)) -> tuple[Any, Any]:
    """A figure with a grid of plain, quiet axes (always a 2-D array of them)."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = canvas.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, color="#e6e6e6", linewidth=0.8)
        axis.set_axisbelow(True)
    return canvas, axes


def label(axis: Axes, title: str, x: str, y: str) -> None:
    """Title and axis names."""
    axis.set_title(title, fontsize=11, loc="left")
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def save(canvas: Figure, folder: Path, stem: str) -> list[Path]:
    """Save as PNG and SVG in a folder, without dates so that reruns give equal files.

    The layout, which takes longest, is found once, for the PNG, and is the SVG's too.
    """
    import matplotlib as mpl

    try:
        folder.mkdir(exist_ok=True)
    except OSError as problem:
        raise not_written(folder, problem) from None
    out = []
    plain: Any = {"figure.autolayout": False, "figure.constrained_layout.use": False}
    with mpl.rc_context({"svg.hashsalt": "noisemarket", "svg.fonttype": "none", **plain}):
        for ending, metadata in (("png", {"Software": "noisemarket"}), ("svg", {"Date": None})):
            path, drawn = folder / f"{stem}.{ending}", BytesIO()
            canvas.savefig(drawn, format=ending, dpi=150, metadata=metadata)
            write_atomic(path, drawn.getvalue())
            out.append(path)
            canvas.set_layout_engine(None)
    return out


# Names of curves beside their ends, so that no two overlap

Point = Sequence[float]

FONT = 8.5
WIDEST = 24
"""Letters in a line of a name."""

_EDGE, _PLACE, _TOP = 1.0, 1.03, 0.985


def direct_labels(axis: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write the name of each curve on the right, in its colour, with a line to where it ends.

    ``ends`` has each name's last point and colour. Call it after the limits of the axis are set.
    """
    if not ends:
        return
    axis.get_xlim(), axis.get_ylim()  # limits that follow the curves are set when asked for
    to_axes = axis.transData + axis.transAxes.inverted()
    whole = {name: name.replace(" %", "\N{NO-BREAK SPACE}%") for name in ends}
    shown = {name: "\n".join(wrapped(whole[name], WIDEST, break_on_hyphens=False)) for name in ends}
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
    """Where each name stands, as near to its curve's end as the others let it.

    ``points`` are the ends of the curves, ``sizes`` the heights of their names: all in parts of the
    axis. Taking the heights of all names below it from each turns "no two overlap" into "none is
    below the one before": isotonic regression, cut to the axis.
    """
    from scipy.optimize import isotonic_regression

    ends, size = np.array([y for _, y in points]), np.array(sizes)
    order = np.argsort(ends, kind="stable")
    below = np.cumsum(size[order]) - size[order] / 2.0
    room = max(_TOP - float(size.sum()), 0.0)
    placed = np.empty(len(ends))
    placed[order] = np.clip(isotonic_regression(ends[order] - below).x, 0.0, room) + below
    return [float(height) for height in placed]
