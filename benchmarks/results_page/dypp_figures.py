"""Figures of docs/explanation/results.md: costs that change, and what the paper leaves open."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.results_page.common import Document
from noisemarket.show.style import colour_of, figure, label, name_of, save
from noisemarket.study.results import half_width


def player_in_words(player: str) -> str:
    """A player of the study, with how it plays."""
    name, printed, _ = player.partition(" as printed")
    return name_of(name) + printed


def draw_adaptation(folder: Path, found: Document) -> list[Path]:
    """Bars before and after a change of all privacy costs, a panel for each change."""
    factors = list(dict.fromkeys(row["factor"] for row in found["rows"]))
    canvas, axes = figure(len(factors), size=(5.0, 3.5))
    for axis, factor in zip(axes[0], factors, strict=True):
        rows = [row for row in found["rows"] if row["factor"] == factor][::-1]
        for at, row in enumerate(rows):
            colour = colour_of(row["player"].partition(" as ")[0])
            for shift, when, alpha in ((0.19, "before", 0.45), (-0.19, "after", 1.0)):
                value = 100.0 * float(np.mean(row[when]))
                wide = 100.0 * half_width(row[when])
                axis.barh(at + shift, value, height=0.36, color=colour, alpha=alpha, xerr=wide,
                          error_kw={"elinewidth": 0.9, "capsize": 2})  # fmt: skip
                axis.text(value + wide + 1.5, at + shift, f"{when} {value:.0f} %", va="center",
                          fontsize=8)  # fmt: skip
        axis.set_yticks(range(len(rows)), [player_in_words(row["player"]) for row in rows])
        axis.set_xlim(0.0, 128.0)
        axis.set_xticks([0, 25, 50, 75, 100])
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
        what = "halve" if factor < 1 else "double"
        label(axis, f"All privacy costs {what}:\n{_lost(rows)}", "% of the equilibrium's gain", "")
    axes[0][-1].set_yticklabels([])
    return save(canvas, folder, "adaptation")


def _lost(rows: list[Document]) -> str:
    """In how many runs DyPP is back by default."""
    own = [one for row in rows if row["player"] == "dypp" for one in row["recovered_after"]]
    back = sum(one is not None for one in own)
    return f"DyPP is back in {back} of {len(own)} runs"


def draw_sensitivity(folder: Path, found: Document) -> list[Path]:
    """A panel for each setting: the share of the equilibrium's gain that contracts bring."""
    settings = [name for name in dict.fromkeys(row["setting"] for row in found["rows"])
                if _shares(found, name, "dypp")]  # fmt: skip
    canvas, axes = figure(len(settings), size=(2.45, 3.2))
    low, high = 100.0, 0.0
    for axis, name in zip(axes[0], settings, strict=True):
        for learner, mark in (("dypp", "P"), ("q_learning", "X")):
            shares = _shares(found, name, learner)
            middle = [100.0 * float(np.mean(one)) for one in shares.values()]
            widths = [100.0 * half_width(one) for one in shares.values()]
            axis.errorbar(range(len(shares)), middle, widths, color=colour_of(learner), marker=mark,
                          linestyle="-" if learner == "q_learning" else (0, (5, 1.6)),
                          capsize=2, elinewidth=0.9, label=name_of(learner))  # fmt: skip
            if learner == "dypp":
                low, high = min(low, *middle), max(high, *middle)
        axis.set_xticks(range(len(shares)), [_tick(value) for value in shares], fontsize=8)
        axis.set_ylim(0.0, 100.0)
        label(axis, "", name.replace("_", " "), "")
    axes[0][0].set_ylabel("% of the equilibrium's gain")
    axes[0][0].legend(loc="lower left", frameon=False, fontsize=8)
    canvas.suptitle(
        f"What the paper leaves open moves DyPP between {low:.0f} and {high:.0f} % "
        "of the equilibrium's gain",
        fontsize=11, x=0.01, ha="left",
    )  # fmt: skip
    return save(canvas, folder, "sensitivity")


def _shares(found: Document, setting: str, learner: str) -> dict[object, list[float]]:
    """Value of a setting to the shares over the seeds, where the equilibrium has a gain at all."""
    rows = [row for row in found["rows"] if row["setting"] == setting]
    if any(min(row["equilibrium"]) <= 1e-9 for row in rows):
        return {}
    return {
        row["value"]: [a / b for a, b in zip(row[learner], row["equilibrium"], strict=True)]
        for row in rows
    }


def _tick(value: object) -> str:
    if isinstance(value, int) and value >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
