"""The report of a whole market: what was bought, for how much, and what it improved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from noisemarket.errors import NoisemarketError
from noisemarket.market import MarketOutcome
from noisemarket.market.alternatives import Alternative
from noisemarket.market.summary import Compared, owner_rows
from noisemarket.report.alternatives_report import draw_accuracies
from noisemarket.report.partition_report import draw_partition, holdings
from noisemarket.report.style import figure, label, name_of, save
from noisemarket.runfolder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE = "#1f5fa8"
_SPOKEN = 4  # groups of a figure that are described in words
MOST_GROUPS = 12
"""Rows of the table of sellers; what is beyond them is put together."""


def market_table(summary: Mapping[str, Any]) -> Table:
    """What the job itself came to."""
    table = Table(title="This job", title_justify="left")
    table.add_column("")
    table.add_column(name_of(summary["mechanism"]), justify="right")
    table.add_row("test accuracy", _per_cent(summary["deployed_accuracy"]))
    noise = f"{summary['effective_noise']:.3g} (no trade: {summary['sigma_max']:g})"
    table.add_row("effective noise", noise)
    table.add_row("paid in all", f"{summary['total_paid']:,.2f}")
    if summary["rho"]["max"] is None:
        table.add_row("privacy", "nothing is guaranteed for at least one owner")
    else:
        named = f"epsilon at delta {summary['delta']:g} (least, median, most)"
        table.add_row(named, _three(summary["epsilon"]))
    table.add_row("owners that sold noise", f"{summary['trades']:,} of {summary['owners']:,}")
    if summary["over_budget"]:
        table.add_row("deals beyond the budget", f"{summary['over_budget']:,}")
    kept, broken = summary["contracts_kept"], summary["contracts_broken"]
    table.add_row("contracts kept, broken", f"{kept:,}, {broken:,}")
    records = summary["reference_records"]
    checked = f"checked by {records:,} records" if records else "not checked"
    table.add_row("whether uploads help", checked)
    if not summary["secure_noise"]:
        table.add_row("NOT PRIVATE", "noise from a fixed seed")
    return table


def sellers_table(outcome: MarketOutcome) -> Table:
    """Who sold how much for how much: owners of one noise in one row, those who sold most first."""
    table = Table(title="Who sold what", title_justify="left")
    table.add_column("noise kept, sigma")
    for name in ("epsilon", "owners", "paid to each", "paid in all", "weight in the model"):
        table.add_column(name, justify="right")
    for rows in _groups(outcome):
        sigmas = sorted({row["sigma"] for row in rows})
        named = f"{sigmas[0]:.3g}" + (f" to {sigmas[-1]:.3g}" if len(sigmas) > 1 else "")
        sold = any(row["saving"] > 0 for row in rows)
        epsilons = [row["epsilon"] for row in rows]
        bounded = [value for value in epsilons if value is not None]
        table.add_row(
            named if sold else f"{named} (sold nothing)",
            _range(bounded, "{:.3g}") if len(bounded) == len(rows) else "no bound",
            f"{len(rows):,}",
            _range([row["paid"] for row in rows], "{:,.2f}"),
            f"{sum(row['paid'] for row in rows):,.2f}",
            f"{100 * sum(row['weight'] for row in rows):.1f} %",
        )
    return table


def _groups(outcome: MarketOutcome) -> list[list[dict[str, Any]]]:
    """Rows of owners with the same noise, from the least noise on."""
    by_sigma: dict[float, list[dict[str, Any]]] = {}
    for row in sorted(owner_rows(outcome), key=lambda row: float(row["sigma"])):
        by_sigma.setdefault(row["sigma"], []).append(row)
    groups = list(by_sigma.values())
    if len(groups) <= MOST_GROUPS:
        return groups
    size = math.ceil(len(groups) / MOST_GROUPS)
    starts = range(0, len(groups), size)
    return [list(chain.from_iterable(groups[at : at + size])) for at in starts]


def draw_market(
    folder: RunFolder,
    outcome: MarketOutcome,
    compared: Compared,
    others: Sequence[Alternative] = (),
) -> list[Path]:
    """Accuracy over the rounds beside the alternatives; who gave up how much for which payment."""
    figures = folder.path / "figures"
    try:
        return _draw(figures, outcome, compared, others)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise NoisemarketError(f"{figures} cannot be written: {reason}.") from None


def _draw(
    folder: Path, outcome: MarketOutcome, compared: Compared, others: Sequence[Alternative]
) -> list[Path]:
    canvas, axes = figure(2, size=(5.8, 4.0))
    left, right = axes[0]
    draw_accuracies(left, outcome, compared, others)
    _draw_payments(right, outcome)
    job = outcome.order.job
    held = holdings(job.partition, job.data.train_labels)
    return save(canvas, folder, "market") + draw_partition(folder, held, "Who holds what")


def _draw_payments(axis: Axes, outcome: MarketOutcome) -> None:
    """A dot for all owners that gave up the same privacy for the same money: their number."""
    rows = owner_rows(outcome)
    total, delta = sum(row["paid"] for row in rows), rows[0]["delta"]
    sold = sum(row["saving"] > 0 for row in rows)
    title = f"{sold:,} of {len(rows):,} owners sold noise, for {total:,.2f} in all"
    label(axis, title, f"privacy given up, epsilon at delta {delta:g}", "paid to an owner")
    if any(row["epsilon"] is None for row in rows):
        axis.text(0.5, 0.5, "nothing is guaranteed", ha="center", transform=axis.transAxes)
        return
    groups: dict[float, list[float]] = {}
    for row in rows:
        groups.setdefault(round(row["epsilon"], 3), []).append(row["paid"])
    few = len(groups) <= MOST_GROUPS
    for epsilon, payments in groups.items():
        for paid, count in Counter(round(amount, 2) for amount in payments).items():
            size = 30.0 + 250.0 * math.sqrt(count / len(rows))
            axis.scatter([epsilon], [paid], s=size, color=_BLUE, alpha=0.45, linewidth=0)
        if few:  # all who gave up the same: how many, and for how much
            words = f"{len(payments):,} owners" if len(payments) > 1 else "1 owner"
            if len(groups) <= _SPOKEN:
                words += f"\n{_range(payments, '{:,.2f}')} each" if any(payments) else ", unpaid"
            left = epsilon > 0.6 * max(groups)
            axis.annotate(
                words, (epsilon, max(payments)), textcoords="offset points",
                xytext=(-12 if left else 12, 0), ha="right" if left else "left", va="center",
                fontsize=8.5,
            )  # fmt: skip
    axis.margins(0.15)
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axis.set_xlim(left=0.0)


def _per_cent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} %"


def _range(values: Sequence[float | None], form: str = "{:.1f}") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = (form.format(value) for value in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def _three(values: Mapping[str, float | None]) -> str:
    return ", ".join(
        "inf" if values[name] is None else f"{values[name]:.3g}"
        for name in ("min", "median", "max")
    )
