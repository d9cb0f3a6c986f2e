"""One look for all figures."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisemarket.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "dypp": "#1f5fa8",
    "q_learning": "#c8641b",
    "greedy": "#5b8f3a",
    "phc": "#8a5aa8",
    "bisection": "#3a7ca5",
    "clock": "#0f8a80",
    "pain_fl": "#b03a5b",
    "pac_auction": "#2f7fb5",
    "csra_auction": "#7a4f2a",
    "posted_price": "#6b8e8b",
    "equilibrium": "#222222",
    "first_best": "#8a8a8a",
    "best_portfolio": "#a98a2b",
}
NAMES = {
    "dypp": "DyPP (WoLF-PHC)",
    "q_learning": "Q-learning",
    "greedy": "greedy",
    "phc": "hill-climbing",
    "clock": "clock auction",
    "pain_fl": "Pain-FL menu",
    "pac_auction": "PAC auction",
    "csra_auction": "CSRA auction",
    "posted_price": "posted price",
    "uniform": "uniform DP",
    "no_dp": "no DP",
    "equilibrium": "exact equilibrium",
    "first_best": "first best",
    "best_portfolio": "best portfolio",
}


_APART = 0.055  # of the height of an axis, between two names


def name_of(mechanism: str) -> str:
    """A mechanism in words."""
    return NAMES.get(mechanism, mechanism.replace("_", " "))


def colour_of(mechanism: str) -> str:
    """The colour of a mechanism in every figure."""
    return COLOURS.get(mechanism, "#444444")


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


def direct_labels(axis: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write the name of each curve beside its end, in its colour, so that no two overlap.

    Args:
        axis: where the curves are; it gets room on the right. Call it after its limits are set.
        ends: name to the last point of the curve and its colour.
    """
    if not ends:
        return
    to_axes = axis.transData + axis.transAxes.inverted()
    order = sorted(ends, key=lambda name: ends[name][1])
    heights = [float(to_axes.transform(ends[name][:2])[1]) for name in order]
    for at in range(1, len(heights)):  # from below, each far enough above the one before
        heights[at] = max(heights[at], heights[at - 1] + _APART)
    over = max(0.0, heights[-1] - 1.0)
    for name, height in zip(order, heights, strict=True):
        x, y, colour = ends[name]
        at_end = float(to_axes.transform((x, y))[0])
        place = (1.015, height - over)
        moved = abs(place[1] - float(to_axes.transform((x, y))[1])) > 0.02 or at_end < 0.93
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6}
        axis.annotate(
            name, (x, y), xytext=place, textcoords="axes fraction", color=colour, fontsize=8.5,
            va="center", annotation_clip=False, arrowprops=line if moved else None,
        )  # fmt: skip


def save(canvas: Figure, folder: Path, stem: str) -> list[Path]:
    """Save as PNG and SVG in a folder, without dates so that reruns give equal files."""
    import matplotlib as mpl

    folder.mkdir(exist_ok=True)
    out = []
    with mpl.rc_context({"svg.hashsalt": "noisemarket", "svg.fonttype": "none"}):
        for ending, metadata in (("png", {"Software": "noisemarket"}), ("svg", {"Date": None})):
            path, drawn = folder / f"{stem}.{ending}", BytesIO()
            canvas.savefig(drawn, format=ending, dpi=150, metadata=metadata)
            write_atomic(path, drawn.getvalue())
            out.append(path)
    return out
