"""The report of a whole market: what was bought, for how much, and what it improved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from noisemarket.errors import NoisemarketError
from noisemarket.market import MarketOutcome
from noisemarket.market.baselines import MARKET, NO_DP, UNIFORM
from noisemarket.market.summary import Compared, deployed, mean, owner_rows
from noisemarket.report.partition_report import draw_partition, holdings
from noisemarket.report.style import figure, label, save
from noisemarket.runfolder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE = "#1f5fa8"
MOST_GROUPS = 12
"""Rows of the table of sellers; what is beyond them is put together."""


_HEADS = {UNIFORM: "no trade", MARKET: "the market", NO_DP: "no noise"}


def market_table(summary: Mapping[str, Any]) -> Table:
    """What the market cost and brought; beside no trade and no noise, where these were trained."""
    seen = summary["accuracies"]
    known = [name for name in (UNIFORM, MARKET, NO_DP) if name in seen]
    table = Table(title="What the market bought", title_justify="left")
    table.add_column("")
    for name in known:
        table.add_column(_HEADS[name], justify="right")

    def row(title: str, market: str, no_trade: str = "", no_noise: str = "") -> None:
        cells = {UNIFORM: no_trade, MARKET: market, NO_DP: no_noise}
        table.add_row(title, *(cells[name] for name in known))

    draws = max(map(len, seen.values()))
    if draws > 1:
        means = {name: _per_cent(mean(seen.get(name, []))) for name in _HEADS}
        ranges = {name: _range(seen.get(name, [])) for name in _HEADS}
        row(f"test accuracy, mean of {draws} draws of the noise", means[MARKET], means[UNIFORM],
            means[NO_DP])  # fmt: skip
        row("the draws", ranges[MARKET], ranges[UNIFORM], ranges[NO_DP])
        row("this job", _per_cent(summary["deployed_accuracy"]))
    else:
        ends = (mean(seen.get(name, [])) for name in (MARKET, UNIFORM, NO_DP))
        row("test accuracy", *map(_per_cent, ends))
    noise = f"{summary['effective_noise']:.3g}", f"{summary['sigma_max']:g}", "0"
    row("effective noise", *noise)
    row("paid in all", f"{summary['total_paid']:,.2f}", "0")
    if summary["rho"]["max"] is None:
        row("privacy", "nothing is guaranteed for at least one owner")
    else:
        named = f"epsilon at delta {summary['delta']:g} (least, median, most)"
        row(named, _three(summary["epsilon"]))
    row("owners that sold noise", f"{summary['trades']:,} of {summary['owners']:,}")
    if summary["over_budget"]:
        row("deals beyond the budget", f"{summary['over_budget']:,}")
    kept, broken = summary["contracts_kept"], summary["contracts_broken"]
    row("contracts kept, broken", f"{kept:,}, {broken:,}")
    if not summary["secure_noise"]:
        row("NOT PRIVATE", "noise from a fixed seed")
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


def draw_market(folder: RunFolder, outcome: MarketOutcome, compared: Compared) -> list[Path]:
    """Accuracy over the rounds beside both baselines; who gave up how much for which payment."""
    figures = folder.path / "figures"
    try:
        return _draw(figures, outcome, compared)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise NoisemarketError(f"{figures} cannot be written: {reason}.") from None


def _draw(folder: Path, outcome: MarketOutcome, compared: Compared) -> list[Path]:
    canvas, axes = figure(2, size=(5.8, 4.0))
    left, right = axes[0]
    _draw_accuracy(left, outcome, compared)
    _draw_payments(right, outcome)
    job = outcome.order.job
    held = holdings(job.partition, job.data.train_labels)
    return save(canvas, folder, "market") + draw_partition(folder, held, "Who holds what")


def _draw_accuracy(axis: Axes, outcome: MarketOutcome, compared: Compared) -> None:
    """A line for the mean over the draws of the noise, a band from the lowest to the highest."""
    drawn = {
        "no noise": (compared.get(NO_DP, []), "#222222"),
        "the market": ([outcome.results, *compared.get(MARKET, [])], _BLUE),
        "no trade": (compared.get(UNIFORM, []), "#c8641b"),
    }
    draws = 0
    for name, (runs, colour) in drawn.items():
        if not runs or not all(runs):
            continue
        draws = max(draws, len(runs))
        rounds = [result.number for result in min(runs, key=len)]
        values = np.array([[deployed(result) for result in run[: len(rounds)]] for run in runs])
        middle = values.mean(axis=0)
        axis.plot(rounds, middle, ".-", color=colour, label=f"{name}: {middle[-1]:.1f} %")
        if len(runs) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axis.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.legend(frameon=False, fontsize=9, loc="lower right", title="accuracy at the end")
    title = "How well the model does"
    title += f" (mean and range of {draws} draws of the noise)" if draws > 1 else ""
    label(axis, title, "round", "test accuracy, %")


def _draw_payments(axis: Axes, outcome: MarketOutcome) -> None:
    """A dot for all owners that gave up the same privacy for the same money: their number."""
    rows = owner_rows(outcome)
    total, delta = sum(row["paid"] for row in rows), rows[0]["delta"]
    title = f"What {total:,.2f} in all was paid for"
    label(axis, title, f"privacy given up, epsilon at delta {delta:g}", "paid to an owner")
    if any(row["epsilon"] is None for row in rows):
        axis.text(0.5, 0.5, "nothing is guaranteed", ha="center", transform=axis.transAxes)
        return
    counts = Counter((round(row["epsilon"], 3), round(row["paid"], 2)) for row in rows)
    epsilon, paid = zip(*counts, strict=True)
    size = [30.0 + 250.0 * math.sqrt(count / len(rows)) for count in counts.values()]
    axis.scatter(epsilon, paid, s=size, color=_BLUE, alpha=0.45, linewidth=0)
    for (x, y), count in counts.most_common(MOST_GROUPS):
        if count >= max(2, len(rows) // 20):
            axis.annotate(
                f"{count} owners", (x, y), textcoords="offset points", xytext=(9, 5), fontsize=8
            )
    axis.margins(0.15)
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))


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
