"""Who sells: privacy sold and what owners gain, by fifths of their privacy cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noisemarket.show.campaign_report import (
    budget_in_words,
    by_mechanism,
    head_of_mechanism,
    listed,
    middle_budget,
)
from noisemarket.show.style import figure, label, save
from noisemarket.study.results import NO_TRADE, QUANTILES, Row

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
