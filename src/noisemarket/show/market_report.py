"""The report of a whole market: what was bought, for how much, and what else could have been."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from noisemarket.market.baselines import (
    CLOCK,
    MARKET,
    NO_DP,
    UNIFORM,
    Alternative,
)
from noisemarket.market.inspection import SURE
from noisemarket.market.outcome import MarketOutcome, Outcome
from noisemarket.market.run_folder import RunFolder
from noisemarket.market.summary import Compared, deployed, owner_figures
from noisemarket.show.negotiation_report import game_curves, plot_curves
from noisemarket.show.style import (
    FONT,
    colour_of,
    figure,
    label,
    listed,
    name_curves,
    name_of,
    save,
    shown,
    table_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {UNIFORM: "#c8641b", NO_DP: "#222222"}
_BLUE = "#1f5fa8"
_money = partial(shown, form="{:,.2f}", missing="")
_SPOKEN = 3  # groups of sellers that are described in words
MOST_GROUPS = 12
"""Rows of the table of sellers; what is beyond them is put together."""


def alternatives_table(summary: Mapping[str, Any]) -> Table:
    """A row for each alternative of a run's summary: accuracy, price, privacy sold, and the worth
    to both sides. Those with the same contracts are one row."""
    each = summary["alternatives"]
    heads = {row["name"]: name_of(row["mechanism"] or row["name"]) for row in each}
    draws = max(len(row["accuracies"]) for row in summary["alternatives"])
    of = f", mean of {draws} draws of the noise at most" if draws > 1 else ""
    table = table_of(
        f"What the market bought (test accuracy{of})", "", "accuracy", "draws",
        f"paid,\n{summary['currency']}", "sellers",
        "epsilon\nsold,\nin all", "value,\npredicted", "value,\ntrained", "owners'\nsurplus",
    )  # fmt: skip
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for row in summary["alternatives"]:
        contracts = row["same_as"] or row["name"], row["paid"], row["mechanism"] is None
        groups.setdefault(contracts, []).append(row)
    for rows in groups.values():
        row = min(rows, key=lambda row: row["same_as"] is not None)
        same, agreed = row["same_as"], row["mechanism"] is not None
        names = (
            f"[bold]{heads[one['name']]}[/bold]" if one["name"] == MARKET else heads[one["name"]]
            for one in rows
        )
        table.add_row(
            ",\n".join(names),
            shown(row["mean_accuracy"], "{:.2f} %", ""),
            f"as {heads[same]}" if same else _range(row["accuracies"]),
            _money(row["paid"]) if agreed else "",
            str(row["sellers"]) if agreed else "",
            shown(row["epsilon_sold"], "{:,.1f}", "no bound"),
            _money(row["predicted_value"]),
            _money(row["trained_value"]),
            _money(row["owners_surplus"]),
        )
    return table


def advice(summary: Mapping[str, Any]) -> str | None:
    """A line where the clock auction buys, or would have bought, more for less."""
    rows = {row["name"]: row for row in summary["alternatives"]}
    own, clock = rows.get(MARKET), rows.get(CLOCK)
    if not rows and (summary["predicted_value"] or 0.0) < 0.0 < summary["total_paid"]:
        return (
            f"By the prediction this trade is not worth its money: {summary['total_paid']:,.2f} "
            f"{summary['currency']}. --mechanism {CLOCK} buys only what is."
        )
    if own is None or clock is None or own["mean_accuracy"] is None:
        return None
    more, less = clock["mean_accuracy"] - own["mean_accuracy"], own["paid"] - clock["paid"]
    dominates = more >= 0.0 and less >= 0.0 and more + less > 0.0
    if not dominates and clock["trained_value"] <= own["trained_value"]:
        return None
    (bought, better) = (
        f"{row['mean_accuracy']:.2f} % for {row['paid']:,.2f} {summary['currency']} (a value of "
        f"{row['trained_value']:,.2f} to the curator)"
        for row in (own, clock)
    )
    return (
        f"The clock auction would have bought {better}; {name_of(own['mechanism'])} bought "
        f"{bought}. To choose it: --mechanism {CLOCK}"
    )


def within_draws(summary: Mapping[str, Any]) -> list[str]:
    """A line on the alternatives whose draws of the noise overlap in accuracy, if any do."""
    rows = [row for row in summary["alternatives"] if row["mechanism"] and not row["same_as"]]
    spans = [
        (name_of(row["mechanism"]), min(row["accuracies"]), max(row["accuracies"]))
        for row in rows
        if row["mean_accuracy"] is not None
    ]
    pairs = [
        f"{one} and {other}"
        for (one, low, high), (other, least, most) in combinations(spans, 2)
        if low <= most and least <= high
    ]
    said = "Their draws of the noise overlap, so which is more accurate may be chance:"
    return [f"{said} {'; '.join(pairs)}."] if pairs else []


def market_table(summary: Mapping[str, Any]) -> Table:
    """The outcome of the job itself."""
    table = table_of("This job", "", name_of(summary["mechanism"]))
    table.add_row("test accuracy", shown(summary["deployed_accuracy"], "{:.2f} %", "not measured"))
    bought, without = (
        shown(summary[name], "{:.2f} %", "")
        for name in ("predicted_accuracy", "predicted_no_trade_accuracy")
    )
    table.add_row("accuracy, predicted", f"{bought} (no trade: {without})")
    if not summary["alternatives"]:  # their table has it
        gain = _money(summary["predicted_value"])
        table.add_row("curator's value over no trade, predicted", gain)
    noise = f"{summary['effective_noise']:.3g} (no trade: {summary['sigma_max']:g})"
    table.add_row("effective noise", noise)
    table.add_row("paid in all", f"{summary['total_paid']:,.2f} {summary['currency']}")
    if summary["rho"]["max"] is None:
        table.add_row("privacy", "nothing is guaranteed for at least one owner")
    else:
        named = f"epsilon at delta {summary['delta']:g} (least, median, most)"
        table.add_row(named, _three(summary["epsilon"]))
    table.add_row("owners that sold noise", f"{summary['trades']:,} of {summary['owners']:,}")
    if summary["owners_at_cap"]:
        table.add_row("owners whose privacy cap allows no more", f"{summary['owners_at_cap']:,}")
    if summary["simulated_owners"]:
        table.add_row("simulated owners", "their records were dealt out to them")
    if summary["over_budget"]:
        table.add_row("deals beyond the budget", f"{summary['over_budget']:,}")
    kept, broken = summary["contracts_kept"], summary["contracts_broken"]
    table.add_row("contracts kept, broken", f"{kept:,}, {broken:,}")
    if not summary["secure_noise"]:
        table.add_row("NOT PRIVATE", "noise from a fixed seed")
    return table


def sellers_table(outcome: Outcome) -> Table:
    """Noise, privacy and money of the sellers: a row per level of noise, the least noise first."""
    table = table_of(
        "Who sold what", "noise kept, sigma", "epsilon", "owners",
        f"paid to each,\n{outcome.currency}", f"paid in all,\n{outcome.currency}",
        "weight in the model", "test loss\nlowered by",
    )  # fmt: skip
    for rows in _groups(outcome):
        sigmas = sorted({row["sigma"] for row in rows})
        named = f"{sigmas[0]:.3g}" + (f" to {sigmas[-1]:.3g}" if len(sigmas) > 1 else "")
        sold = any(row["saving"] > 0 for row in rows)
        bounded = [row["epsilon"] for row in rows if row["epsilon"] is not None]
        table.add_row(
            named if sold else f"{named} (sold nothing)",
            _range(bounded, "{:.3g}") if len(bounded) == len(rows) else "no bound",
            f"{len(rows):,}",
            _range([row["paid"] for row in rows], "{:,.2f}"),
            f"{sum(row['paid'] for row in rows):,.2f}",
            f"{100 * sum(row['weight'] for row in rows):.1f} %",
            _lowered(rows),
        )
    return table


def _lowered(rows: Sequence[Mapping[str, Any]]) -> str:
    """By how much these owners' uploads lowered the test loss, to first order."""
    error = math.hypot(*(row["loss_lowered_error"] for row in rows))
    return f"{sum(row['loss_lowered'] for row in rows):.3g} ± {error:.2g}"


def harmful_uploads(outcome: MarketOutcome) -> list[str]:
    """A line for each owner whose uploads raise the test loss by more than noise explains; none
    where nothing bounds an update: there an honest owner's may, too."""
    reach = outcome.order.job.protection.reach
    return [
        f"The uploads of owner {row['owner']} raise the test loss, by {-row['loss_lowered']:.3g} ± "
        f"{row['loss_lowered_error']:.2g}: such uploads do not move the model. Pay does not "
        "depend on it."
        for row in owner_figures(outcome)
        if math.isfinite(reach(row["records"]))
        and row["loss_lowered"] < -SURE * row["loss_lowered_error"]
    ]


def _groups(outcome: Outcome) -> list[list[dict[str, Any]]]:
    """Rows of owners with the same noise, from the least noise on."""
    by_sigma: dict[float, list[dict[str, Any]]] = {}
    for row in sorted(owner_figures(outcome), key=lambda row: float(row["sigma"])):
        by_sigma.setdefault(row["sigma"], []).append(row)
    groups = list(by_sigma.values())
    if len(groups) <= MOST_GROUPS:
        return groups
    size = math.ceil(len(groups) / MOST_GROUPS)
    starts = range(0, len(groups), size)
    return [list(chain.from_iterable(groups[at : at + size])) for at in starts]


def draw_market(
    folder: RunFolder, outcome: MarketOutcome, compared: Compared, others: Sequence[Alternative]
) -> list[Path]:
    """Four panels: saving and payment over the interactions beside the exact equilibrium, where a
    game was played; accuracy over the rounds beside the alternatives; money over privacy sold."""
    game = outcome.negotiation
    curves = game_curves({game.scenario.mechanism: game})
    canvas, axes = figure(2, rows=2 if curves else 1, size=(6.0, 3.9))
    if curves:
        money = f"payment, mean over the owners, {outcome.currency}"
        titles = [
            ("What the two sides learn to sell", "noise left out, mean over the owners"),
            ("What they learn to pay", money),
        ]
        plot_curves(axes[0], curves, titles)
        name_curves(axes[0][0], "{:.3f}")
        name_curves(axes[0][1], "{:.2f}")
    left, right = axes[-1]
    _draw_accuracies(left, outcome, compared, others)
    _draw_payments(right, outcome)
    return save(canvas, folder.path / "figures", "market")


def _draw_accuracies(
    axis: Axes, outcome: Outcome, compared: Compared, others: Sequence[Alternative]
) -> None:
    """A line for the mean over the draws of the noise, a band from the lowest to the highest."""
    runs_of = {**compared, MARKET: [outcome.results, *compared.get(MARKET, [])]}
    mechanism = outcome.mechanism
    names = {one.name: name_of(one.mechanism or one.name) for one in others} or {
        MARKET: name_of(mechanism)
    }
    draws = 0
    means: dict[str, float] = {}
    for name, head in names.items():
        runs = runs_of.get(name, [])
        if not runs or not all(runs):
            continue
        draws = max(draws, len(runs))
        colour = _COLOURS.get(name) or colour_of(mechanism if name == MARKET else name)
        rounds = [result.number for result in min(runs, key=len)]
        values = np.array([[deployed(result) for result in run[: len(rounds)]] for run in runs])
        middle = values.mean(axis=0)
        wide = 2.4 if name == MARKET else 1.3
        twins = [one.name for one in others if one.same_as == name]
        words = listed([head, *(names[twin] for twin in twins)])
        axis.plot(rounds, middle, color=colour, linewidth=wide, label=words)
        if len(runs) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axis.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
        means |= dict.fromkeys([name, *twins], float(middle[-1]))
    _to_the_point(axis, list(means.values()))
    name_curves(axis, "{:.1f} %")
    title = "Test accuracy"
    if {UNIFORM, MARKET} <= means.keys():
        gained = means[MARKET] - means[UNIFORM]
        title = f"What it brings: {gained:+.1f} points over no trade by {name_of(mechanism)}"
    bands = f" (bands: from the lowest to the highest of {draws} draws)" if draws > 1 else ""
    label(axis, title, f"round{bands}", "test accuracy, %")


def _to_the_point(axis: Axes, ends: Sequence[float]) -> None:
    """Show where the curves end; the first rounds, far below, come in from the lower edge."""
    if ends and (apart := max(ends) - min(ends)) > 0:
        low, high = axis.get_ylim()
        bottom = max(low, min(ends) - 2.5 * apart)
        axis.set_ylim(bottom, min(high, max(ends) + 0.3 * apart))


def _draw_payments(axis: Axes, outcome: Outcome) -> None:
    """A dot for the owners that gave up the same privacy for the same money, as large as they are
    many. Groups by epsilon are named where there are few; otherwise a legend gives their sizes."""
    rows = owner_figures(outcome)
    total, delta = sum(row["paid"] for row in rows), rows[0]["delta"]
    sellers = sum(row["saving"] > 0 for row in rows)
    words = f"for {total:,.2f} {outcome.currency} in all"
    title = f"What owners sold: {sellers:,} of {len(rows):,} sold noise, {words}"
    x = f"privacy given up, epsilon at delta {delta:g}"
    label(axis, title, x, f"paid to an owner, {outcome.currency}")
    if any(row["epsilon"] is None for row in rows):
        axis.text(0.5, 0.5, "nothing is guaranteed", ha="center", transform=axis.transAxes)
        return
    groups: dict[tuple[bool, float], list[float]] = {}
    names: dict[tuple[bool, float], list[str]] = {}
    for row in rows:
        group = row["saving"] > 0, round(row["epsilon"], 3)
        groups.setdefault(group, []).append(round(row["paid"], 2))
        names.setdefault(group, []).append(row["owner"])
    most, largest = max(epsilon for _, epsilon in groups), 1
    few = sum(sold for sold, _ in groups) <= _SPOKEN
    for (sold, epsilon), payments in groups.items():
        colour = _BLUE if sold else _COLOURS[UNIFORM]
        for paid, count in Counter(payments).items():
            size = _dot(count, len(rows))
            axis.scatter([epsilon], [paid], s=size, color=colour, alpha=0.5, linewidth=0)
            largest = max(largest, count)
        if few and sold:
            called = names[sold, epsilon]
            spoken = len(called) <= _SPOKEN and not any(name.isdigit() for name in called)
            words = listed(called) if spoken else _owners(len(payments))
            words += f"\n{_range(payments, '{:,.2f}')}{' each' * (len(payments) > 1)}"
            _beside(axis, words, (epsilon, max(payments)), colour, left=epsilon > 0.6 * most)
    unsold = [epsilon for sold, epsilon in groups if not sold]
    if unsold:
        words = f"{_owners(len(rows) - sellers)} sold nothing"
        _beside(axis, words, (max(unsold), 0.0), _COLOURS[UNIFORM], left=max(unsold) > 0.6 * most)
    axis.margins(0.15)
    axis.set_ylim(min(0.0, axis.get_ylim()[0]), None if total else 1.0)
    axis.set_xlim(left=0.0)
    if not few and largest > 1:
        for count in sorted({1, max(1, largest // 4), largest}):
            size, words = _dot(count, len(rows)), f"a dot: {_owners(count)}"
            axis.scatter([], [], s=size, color="#999999", linewidth=0, label=words)
        axis.legend(fontsize=FONT, loc="best")  # framed and grey: its dots are no data


def _dot(count: int, owners: int) -> float:
    """The area of a dot for so many of all owners."""
    return 30.0 + 250.0 * math.sqrt(count / owners)


def _owners(count: int) -> str:
    return f"{count:,} owners" if count > 1 else "1 owner"


def _beside(axis: Axes, words: str, place: tuple[float, float], colour: str, *, left: bool) -> None:
    """Words beside a dot, on its left or on its right."""
    axis.annotate(
        words, place, textcoords="offset points", xytext=(-14 if left else 14, 0),
        ha="right" if left else "left", va="center", fontsize=FONT, color=colour,
    )  # fmt: skip


def _range(values: Sequence[float | None], form: str = "{:.1f}") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = (form.format(value) for value in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def _three(values: Mapping[str, float | None]) -> str:
    return ", ".join(shown(values[name], "{:.3g}", "inf") for name in ("min", "median", "max"))
