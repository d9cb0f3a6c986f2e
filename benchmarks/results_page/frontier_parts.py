"""What money buys: the campaign of eight mechanisms, and the clock auction against DyPP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from noisemarket.comparison.decisions import NO_TRADE
from noisemarket.comparison.results import Mean, Row, means, paired_differences
from noisemarket.comparison.significance import Difference
from noisemarket.report.campaign_report import budget_in_words, head_of_mechanism
from noisemarket.report.style import name_of
from results_page.common import Document, made_by, not_measured, stored, table


def rows_of(found: Document) -> list[Row]:
    """The cases of a stored comparison."""
    names = {field.name for field in fields(Row)}
    empty = {"accuracy_per_round": []}
    return [
        Row(**{**empty, **{k: v for k, v in row.items() if k in names}}) for row in found["rows"]
    ]


FIGURE = "![Accuracy over money paid, a curve for each mechanism](../images/{}.png)"


def frontier_part() -> list[str]:
    """Eight mechanisms and three budgets on the features, every owner keeping the same floor."""
    title = "## What money buys: eight mechanisms"
    found = stored("campaign-features")
    if found is None:
        return [title, not_measured("python benchmarks/campaign.py")]
    rows = rows_of(found)
    shown = means(rows)
    nothing = next(one for one in shown if one.mechanism == NO_TRADE)
    tested = paired_differences(rows)
    return [
        title,
        FIGURE.format("results-frontier"),
        f"{found['owners']} owners, {found['rounds']} rounds, features, {nothing.seeds} seeds; "
        "each mechanism on the same owners, data and noise, and at its best settings "
        f"({settings_of(found)}). Every owner keeps noise 0.1 at least, whoever buys: the same "
        f"privacy for all. No trade: {nothing.mean['accuracy']:.2f} ± "
        f"{nothing.half_width['accuracy']:.2f} %. **Bold**: the most accurate of those who know "
        "nothing private; * differs from it, or from no trade, by more than chance (paired t-test "
        f"over the seeds, Holm's correction for all {len(tested)} pairs, 5 %). Lying: the most "
        "that an owner gains by it, first seed.",
        frontier_table(shown, nothing, tested),
        frontier_findings(shown, tested, found["budgets"]),
        "![Who sells: epsilon and surplus by fifths of the privacy cost]"
        "(../images/results-costs.png)",
        made_by(found),
    ]


def no_floor_part() -> list[str]:
    """The same where owners sell all their noise if that is paid."""
    title = "### If owners sell all their noise"
    found = stored("campaign-no-floor")
    if found is None:
        return [title, not_measured("python benchmarks/campaign.py --no-floor")]
    shown = means(rows_of(found))
    nothing = next(one for one in shown if one.mechanism == NO_TRADE)
    lines = []
    for one in shown:
        if one.mechanism in SHORT:
            rows = [row for row in rows_of(found)
                    if (row.mechanism, row.budget) == (one.mechanism, one.budget)]  # fmt: skip
            bounded = sum(row.epsilon_sold is not None for row in rows)
            gain = (one.mean["accuracy"] or 0.0) - (nothing.mean["accuracy"] or 0.0)
            lines.append(
                [
                    budget_in_words(one.budget), head_of_mechanism(one.mechanism),
                    f"{one.mean['paid']:.0f}",
                    f"{one.mean['accuracy']:.2f} ± {one.half_width['accuracy']:.2f}",
                    f"{gain:+.2f}", f"{len(rows) - bounded} of {len(rows)} seeds",
                ]
            )  # fmt: skip
    heads = ["budget", "mechanism", "paid", "accuracy, %", "over no trade", "epsilon without bound"]
    return [
        title,
        FIGURE.format("frontier"),
        "What buys owner by owner then buys all the noise of a few owners, who are left without "
        "any bound on epsilon, and the model rests on their bare data. That is worth more than "
        "what the clock auction buys, whose sellers still keep noise 0.1. Same setting otherwise, "
        f"{nothing.seeds} seeds.",
        table(heads, lines),
        made_by(found),
    ]


SHORT = ("clock", "pain_fl", "bisection", "dypp", "q_learning", "best_portfolio")
"""Mechanisms of the short table."""


def settings_of(found: Document) -> str:
    """Settings of single mechanisms, in words."""
    return "; ".join(
        f"{name_of(name)}: {', '.join(f'{key} {value}' for key, value in own.items())}"
        for name, own in found["settings"].items()
    )


def frontier_table(shown: Sequence[Mean], nothing: Mean, tested: Sequence[Difference]) -> str:
    """All mechanisms under all budgets."""
    heads = ["budget", "mechanism", "paid", "accuracy, %", "over no trade", "below the best"]
    heads += ["curator's value", "owners' surplus", "epsilon sold", "worse off", "lying", "CPU s"]
    lines = [
        frontier_line(one, nothing, tested, best_of(shown, one.budget))
        for one in shown
        if one.mechanism != NO_TRADE
    ]
    return table(heads, lines)


OPEN = ("clock", "csra_auction", "bisection", "dypp", "q_learning")
"""Mechanisms of the campaign that know nothing private."""


def best_of(shown: Sequence[Mean], budget: float | None) -> str:
    """The most accurate of those who know nothing private."""
    some = [one for one in shown if one.budget == budget and one.mechanism in OPEN]
    return max(some, key=lambda one: one.mean["accuracy"] or 0.0).mechanism


def between(
    tested: Sequence[Difference], budget: float | None, first: str, second: str
) -> tuple[float, bool]:
    """First less second in points, and whether that is more than chance."""
    for one in tested:
        if one.budget == budget and {one.first, one.second} == {first, second}:
            return (one.points if one.first == first else -one.points), one.significant
    return 0.0, False


def marked(points: tuple[float, bool]) -> str:
    """A difference in points, with a star where it is more than chance."""
    return f"{points[0]:+.2f}{'*' if points[1] else ''}"


def frontier_line(one: Mean, nothing: Mean, tested: Sequence[Difference], best: str) -> list[str]:
    """A row of the frontier's table."""
    mean = one.mean
    words = f"**{head_of_mechanism(one.mechanism)}**" if one.mechanism == best else None
    below = (
        "" if one.mechanism == best else marked(between(tested, one.budget, one.mechanism, best))
    )
    lying = mean["lying_gain"]
    return [
        budget_in_words(one.budget),
        words or head_of_mechanism(one.mechanism),
        f"{mean['paid']:.0f}",
        f"{mean['accuracy']:.2f} ± {one.half_width['accuracy']:.2f}",
        marked(between(tested, one.budget, one.mechanism, nothing.mechanism)),
        below,
        f"{mean['curator_value']:.1f}",
        f"{mean['owners_surplus']:.1f}",
        "-" if mean["epsilon_sold"] is None else f"{mean['epsilon_sold']:.0f}",
        f"{mean['worse_off']:g}",
        "-" if lying is None else f"{lying:.2f}",
        f"{mean['seconds']:.2g}",
    ]


def frontier_findings(
    shown: Sequence[Mean], tested: Sequence[Difference], budgets: Sequence[float]
) -> str:
    """What the table says of the clock auction and DyPP, budget by budget."""
    at = {(one.mechanism, one.budget): one for one in shown}
    words = []
    for budget in budgets:
        points, sure = between(tested, budget, "clock", "dypp")
        clock, papers = at["clock", budget], at["dypp", budget]
        how = "more" if points > 0 else "less"
        certain = "" if sure else " (which may be chance)"
        words.append(
            f"With {budget:g} the clock auction brings {abs(points):.2f} points {how} than "
            f"DyPP{certain}; it pays {clock.mean['paid']:.0f}, DyPP {papers.mean['paid']:.0f}."
        )
    return " ".join(words)


def cnn_part() -> list[str]:
    """The clock auction against DyPP on the CNN, by benchmarks/frontier.py."""
    out = ["## The same on the CNN"]
    for model in ("features", "cnn"):
        found = stored(f"frontier-{model}")
        if found is None:
            if model == "cnn":
                out.append(not_measured("python benchmarks/frontier.py --model cnn --seeds 2"))
            continue
        lines = []
        for row in found["rows"]:
            gain = f"{row['gain']:+.2f} ± {row['gain_half_width']:.2f}" if row["gain"] else ""
            lines.append(
                [row["name"], f"{row['paid']:.1f}", f"{row['sellers']:.1f}",
                 f"{row['accuracy']:.2f}", gain]
            )  # fmt: skip
        seeds = found["rows"][0]["seeds"]
        out += [
            f"Model `{model}`, {seeds} seeds; gains are paired with no trade of the same seed.",
            table(["", "paid", "sellers", "accuracy, %", "gain over no trade"], lines),
            made_by(found),
        ]
    return out
