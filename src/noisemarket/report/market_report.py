"""The report of a whole market: what was bought, for how much, and what it improved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from noisemarket.errors import NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.ledger.money import MICRO
from noisemarket.market import MarketOutcome
from noisemarket.market.summary import deployed
from noisemarket.report.partition_report import draw_partition, holdings
from noisemarket.report.style import COLOURS, figure, label, save
from noisemarket.runfolder import RunFolder

_LINES = {"uniform_dp": ("uniform DP", "#8a8a8a"), "no_dp": ("no DP", "#222222")}


def market_table(summary: Mapping[str, Any]) -> Table:
    """The market in a dozen lines."""
    table = Table(title="The market", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")

    def per_cent(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.2f} %"

    table.add_row("owners, rounds", f"{summary['owners']:,}, {summary['rounds']}")
    table.add_row("accuracy under contract", per_cent(summary["deployed_accuracy"]))
    table.add_row("accuracy of uniform DP (no trade)", per_cent(summary["uniform_dp_accuracy"]))
    table.add_row("accuracy without DP", per_cent(summary["no_dp_accuracy"]))
    table.add_row("owners that sold noise", f"{summary['trades']:,}")
    if summary["over_budget"]:
        table.add_row("deals beyond the budget", f"{summary['over_budget']:,}")
    kept, broken = summary["contracts_kept"], summary["contracts_broken"]
    table.add_row("contracts kept, broken", f"{kept:,}, {broken:,}")
    table.add_row("paid in all", f"{summary['total_paid']:,.2f}")
    table.add_row("paid per owner (min, median, max)", _three(summary["paid"]))
    table.add_row("noise sigma (min, median, max)", _three(summary["sigma"]))
    if summary["rho"]["max"] is None:
        table.add_row("privacy", "nothing is guaranteed for at least one owner")
    else:
        table.add_row("zCDP rho given up", _three(summary["rho"]))
        table.add_row(f"epsilon at delta {summary['delta']:g}", _three(summary["epsilon"]))
    if not summary["secure_noise"]:
        table.add_row("NOT PRIVATE", "noise from a fixed seed")
    return table


def draw_market(
    folder: RunFolder, outcome: MarketOutcome, baselines: Mapping[str, Sequence[RoundResult]]
) -> list[Path]:
    """Accuracy over the rounds with both baselines; who sold how much, and for what payment."""
    figures = folder.path / "figures"
    try:
        return _draw(figures, outcome, baselines)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise NoisemarketError(f"{figures} cannot be written: {reason}.") from None


def _draw(
    folder: Path, outcome: MarketOutcome, baselines: Mapping[str, Sequence[RoundResult]]
) -> list[Path]:
    canvas, axes = figure(3)
    left, middle, right = axes[0]
    lines = {"the market": (outcome.results, COLOURS["dypp"])} | {
        _LINES[name][0]: (results, _LINES[name][1]) for name, results in baselines.items()
    }
    for name, (results, colour) in lines.items():
        rounds = [result.number for result in results]
        left.plot(rounds, [deployed(r) for r in results], ".-", color=colour, label=name)
    left.legend(frameon=False, fontsize=9)
    label(left, "Accuracy with the noise that was bought", "round", "test accuracy, %")
    sigma = np.array([deal.sigma for deal in outcome.deals.deals])
    paid = np.array([outcome.payments.get(d.owner, 0) for d in outcome.deals.deals]) / MICRO
    middle.plot(sigma, paid, "o", color=COLOURS["dypp"], alpha=0.4, markersize=5)
    label(middle, "What owners kept and what they got", "noise kept, sigma", "paid")
    epsilon = np.array([one.epsilon for one in outcome.statements])
    if np.isfinite(epsilon).all():
        right.plot(epsilon, paid, "o", color=COLOURS["pain_fl"], alpha=0.4, markersize=5)
    else:
        right.text(0.5, 0.5, "nothing is guaranteed", ha="center", transform=right.transAxes)
    delta = outcome.statements[0].delta
    label(right, "What owners gave up for it", f"epsilon at delta {delta:g}", "paid")
    job = outcome.order.job
    held = holdings(job.partition, job.data.train_labels)
    return save(canvas, folder, "market") + draw_partition(folder, held, "Who holds what")


def _three(values: Mapping[str, float | None]) -> str:
    return ", ".join(
        "inf" if values[name] is None else f"{values[name]:.3g}"
        for name in ("min", "median", "max")
    )
