"""One look for all figures and tables."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from noisemarket.files import not_written, write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    "best_portfolio": Look("best portfolio", "#b38f00", "*", _BOTH),
}
"""Colours were searched so that any two stay apart for protans and deutans too:
tests/show/test_colours.py."""

_UNDRAWN = {"uniform": "uniform DP", "no_dp": "no DP"}


def _look(mechanism: str) -> Look:
    name = _UNDRAWN.get(mechanism, mechanism.replace("_", " "))
    return LOOKS.get(mechanism, Look(name, "#444444", "x"))


def name_of(mechanism: str) -> str:
    """A mechanism in words."""
    return _look(mechanism).name


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


def table_of(title: str, words: str, *numbers: str, **more: Any) -> Table:
    """A table with a first column of words, and columns of numbers."""
    table = Table(title=title, title_justify="left", **more)
    table.add_column(words)
    for head in numbers:
        table.add_column(head, justify="right")
    return table


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
