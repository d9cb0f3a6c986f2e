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
    "dypp": "#0064cb",
    "q_learning": "#b74900",
    "greedy": "#7e9639",
    "phc": "#8872d3",
    "bisection": "#672699",
    "clock": "#1f825f",
    "pain_fl": "#d35792",
    "pac_auction": "#4899c9",
    "csra_auction": "#56340d",
    "posted_price": "#007775",
    "equilibrium": "#121211",
    "first_best": "#635155",
    "best_portfolio": "#b38f00",
}
"""Searched so that any two stay apart for protans and deutans too: tests/report/test_colours.py."""

MARKS = {
    "dypp": "P",
    "q_learning": "X",
    "greedy": "<",
    "phc": ">",
    "bisection": "v",
    "clock": "o",
    "pain_fl": "^",
    "pac_auction": "h",
    "csra_auction": "s",
    "posted_price": "D",
    "equilibrium": "p",
    "first_best": "d",
    "best_portfolio": "*",
}
_SOLID, _DASHED, _DOTTED, _BOTH = "-", (0, (5, 1.6)), (0, (1.4, 1.2)), (0, (6, 1.4, 1.4, 1.4))
DASHES: Mapping[str, Any] = {
    "dypp": _DASHED,
    "q_learning": _BOTH,
    "phc": _DOTTED,
    "csra_auction": _DASHED,
    "posted_price": _DOTTED,
    "pain_fl": _DOTTED,
    "best_portfolio": _BOTH,
    "equilibrium": _DASHED,
    "pac_auction": _BOTH,
    "first_best": _DOTTED,
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


def name_of(mechanism: str) -> str:
    """A mechanism in words."""
    return NAMES.get(mechanism, mechanism.replace("_", " "))


def colour_of(mechanism: str) -> str:
    """The colour of a mechanism in every figure."""
    return COLOURS.get(mechanism, "#444444")


def mark_of(mechanism: str) -> str:
    """The marker of a mechanism; one from outside has a cross."""
    return MARKS.get(mechanism, "x")


def look_of(mechanism: str) -> dict[str, Any]:
    """Colour, marker and dashes of a mechanism's curve, as Matplotlib's ``plot`` takes them."""
    return {
        "color": colour_of(mechanism),
        "marker": mark_of(mechanism),
        "linestyle": DASHES.get(mechanism, _SOLID),
        "markersize": 8 if mark_of(mechanism) == "*" else 5.5,
        "linewidth": 1.6,
    }


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

    folder.mkdir(exist_ok=True)
    out = []
    look: Any = {
        "svg.hashsalt": "noisemarket",
        "svg.fonttype": "none",
        "figure.autolayout": False,
        "figure.constrained_layout.use": False,
    }
    with mpl.rc_context(look):
        for ending, metadata in (("png", {"Software": "noisemarket"}), ("svg", {"Date": None})):
            path, drawn = folder / f"{stem}.{ending}", BytesIO()
            canvas.savefig(drawn, format=ending, dpi=150, metadata=metadata)
            write_atomic(path, drawn.getvalue())
            out.append(path)
            canvas.set_layout_engine(None)
    return out
