"""One look for all figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from noisemarket.files import not_written, write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

FONT = 8.5
WIDEST = 28
"""Letters in a line of a curve's name."""

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

IDLE = "#8a8a8a"
"""The colour of no trade."""

_UNDRAWN = {"uniform": "no trade", "uniform_dp": "no trade", "no_dp": "no noise"}


def _look(mechanism: str) -> Look:
    if mechanism in _UNDRAWN:
        return Look(_UNDRAWN[mechanism], IDLE, "x", _DASHED)
    return LOOKS.get(mechanism, Look(mechanism.replace("_", " "), "#444444", "x"))


def name_of(mechanism: str) -> str:
    """A mechanism in words."""
    return _look(mechanism).name


def listed(names: Sequence[str], word: str = "and") -> str:
    """Names as a sentence has them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


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


def name_curves(axis: Axes, form: str = "") -> None:
    """Name the labelled curves on the right of an axis, the one that ends highest first; ``form``
    is for the value at the end of each."""
    lines, names = axis.get_legend_handles_labels()
    curves: list[Any] = [line[0] if isinstance(line, tuple) else line for line in lines]
    last = [float(curve.get_ydata()[-1]) for curve in curves]
    order = sorted(range(len(last)), key=lambda at: -last[at])
    shown = [fill(f"{names[at]} {form.format(last[at])}".strip(), WIDEST) for at in order]
    axis.legend(
        [lines[at] for at in order], shown, loc="center left", bbox_to_anchor=(1.0, 0.5),
        frameon=False, fontsize=FONT,
    )  # fmt: skip
