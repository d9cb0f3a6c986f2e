"""The mechanisms side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisemarket.formats import csv_text
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.run_folder import RunFolder
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.convergence import Recovery
from noisemarket.pricing.lying import mean_and_most
from noisemarket.show.negotiation_report import recovered
from noisemarket.show.style import colour_of, figure, label, name_of, save

Row = dict[str, Any]

COLUMNS = (
    *("mechanism", "knows", "mean_saving", "mean_payment", "mean_owner_payoff"),
    *("mean_curator_payoff", "curator_gain", "mean_quality", "total_payment", "model_quality"),
    *("joint_gain", "signed_share", "converged_at", "exploitability", "mean_gained_by_lying"),
    *("most_gained_by_lying", "recovery"),
)
_PANELS = (
    ("mean_saving", "saving"),
    ("mean_payment", "payment"),
    ("mean_owner_payoff", "owner's payoff"),
    ("curator_gain", "curator's gain"),
    ("model_quality", "quality of the model, %"),
    ("joint_gain", "value of the model, gain"),
)


def comparison_rows(results: Mapping[str, Negotiation]) -> list[Row]:
    """One record per mechanism; ``recovery`` says how it recovered from each change."""
    rows = []
    for name, result in results.items():
        summary = result.outcome()
        row: Row = {"mechanism": name, "knows": find_mechanism(name).knows}
        mean, most = mean_and_most(result.gained_by_lying)
        summary |= {"mean_gained_by_lying": mean, "most_gained_by_lying": most}
        row |= {column: summary[column] for column in COLUMNS[2:-1]}
        row["recovery"] = [vars(recovery) for recovery in result.recoveries]
        rows.append(row)
    return rows


def comparison_table(rows: list[Row]) -> Table:
    """The same for the screen: owner's payoff, curator's gain in the paper's game, the quality of
    the one model in %, what it is worth to its curator over no trade, signed share in %, and the
    most that any owner gains by lying."""
    changed = any(row["recovery"] for row in rows)
    title = "Mechanisms on one population, means per owner"
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("mechanism", no_wrap=True)
    heads = ["saving", "payment", "owner", "curator", "model %", "value", "signed", "settled",
             "exploit.", "lying"]  # fmt: skip
    for head in heads + (["recovers in"] if changed else []):
        table.add_column(head, justify="right", no_wrap=head != "recovers in")
    for row in rows:
        cells = [
            f"{row['mean_saving']:.3f}",
            f"{row['mean_payment']:.2f}",
            f"{row['mean_owner_payoff']:.3f}",
            f"{row['curator_gain']:.3f}",
            f"{row['model_quality']:.1f}",
            f"{row['joint_gain']:.1f}",
            f"{100 * row['signed_share']:.0f}",
            "-" if row["converged_at"] is None else f"{row['converged_at']:,}",
            "-" if row["exploitability"] is None else f"{row['exploitability']:.3f}",
            "-" if row["most_gained_by_lying"] is None else f"{row['most_gained_by_lying']:.3f}",
        ]
        if changed:
            times = [recovered(Recovery(**one)) for one in row["recovery"]]
            cells.append(", ".join(times) or "-")
        table.add_row(row["mechanism"], *cells)
    return table


def write_comparison(folder: RunFolder, rows: list[Row]) -> list[Path]:
    """Numbers and figure into a run folder; returns the figures."""
    cells = [[_cell(row[column]) for column in COLUMNS] for row in rows]
    folder.write_text("comparison.csv", csv_text(COLUMNS, cells))
    folder.write_json("comparison.json", rows)
    canvas, axes = figure(len(_PANELS), size=(2.7, 0.28 * len(rows) + 1.0))
    names = [row["mechanism"] for row in rows]
    for axis, (column, title) in zip(axes[0], _PANELS, strict=True):
        values = [float(row[column]) for row in rows]
        axis.barh(range(len(rows)), values, color=[colour_of(name) for name in names], height=0.7)
        axis.set_yticks(range(len(rows)), [name_of(name) for name in names])
        axis.tick_params(axis="y", length=0, labelleft=axis is axes[0][0])
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        if (end := _end_of_axis(values)) is not None:
            far, side = max(values, key=abs), "right" if end > 0.0 else "left"
            axis.set_xlim(**{side: end})
            place = end, values.index(far)
            axis.annotate(f" {far:.3g} ", place, ha=side, va="center", color="white", fontsize=8)
        label(axis, title, "", "")
    return save(canvas, folder.path / "figures", "comparison")


def _end_of_axis(values: Sequence[float]) -> float | None:
    """Where to end an axis so that one bar far beyond all others does not crush them; None if
    there is none such. That bar is cut off there, and its value written on it."""
    far, *others = sorted(values, key=abs, reverse=True)
    longest = max(map(abs, others), default=0.0)
    return math.copysign(1.25 * longest, far) if abs(far) > 3.0 * longest > 0.0 else None


def _cell(value: object) -> object:
    if isinstance(value, list):
        return " ".join(
            ("never" if one["iterations"] is None else str(one["iterations"])) for one in value
        )
    return "" if value is None else value
