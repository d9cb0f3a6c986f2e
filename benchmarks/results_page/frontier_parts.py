"""What money buys: the campaign of eight mechanisms, without a floor, and on the CNN."""

from __future__ import annotations

from benchmarks.results_page.campaigns import (
    CNN,
    FLOORED,
    NO_FLOOR,
    Stored,
    accuracy_in_words,
    campaign,
    marked,
)
from benchmarks.results_page.common import Document, made_by, not_measured, table
from noisemarket.show.comparison_report import budget_in_words, head_of_mechanism
from noisemarket.show.style import name_of
from noisemarket.study.results import Mean

FIGURE = "![Accuracy over money paid, a curve for each mechanism](../images/{}.png)"
RUN = "python -m benchmarks campaign"


def frontier_part() -> list[str]:
    """Eight mechanisms and three budgets on the features, every owner keeping the same floor."""
    title, found = "## What money buys: eight mechanisms", campaign(FLOORED)
    if found is None:
        return [title, not_measured(RUN)]
    return [
        title,
        FIGURE.format("frontier"),
        f"{about(found)} Every owner keeps noise 0.1 at least, whoever buys: the same privacy for "
        f"all. No trade: {accuracy_in_words(found.nothing)} %.",
        *money_tables(found),
        frontier_findings(found),
        *rounds_figure(found),
        "![Who sells: epsilon and surplus by fifths of the privacy cost]"
        "(../images/results-costs.png)",
        made_by(found.document),
    ]


def about(found: Stored) -> str:
    """What was compared, and with which settings."""
    document, own = found.document, settings_of(found.document)
    best = f", and at its best settings ({own})" if own else ""
    return (
        f"{document['owners']} owners, {document['rounds']} rounds, model `{document['model']}`, "
        f"{found.nothing.seeds} seeds; each mechanism on the same owners, data and noise{best}."
    )


def settings_of(found: Document) -> str:
    """Settings of single mechanisms, in words."""
    return "; ".join(
        f"{name_of(name)}: {', '.join(f'{key} {value}' for key, value in own.items())}"
        for name, own in found["settings"].items()
    )


def money_tables(found: Stored) -> list[str]:
    """Money and accuracy; then who gains and what it asks of owners."""
    best = {budget: found.best(budget) for budget in found.budgets}
    money = [money_line(one, found, best[one.budget or 0.0]) for one in found.means]
    return [
        "**Bold**: the most accurate of those who know nothing private; * differs from it, or from "
        "no trade, by more than chance (paired t-test over the seeds, Holm's correction for all "
        f"{len(found.tested)} pairs, 5 %).{_same(found)}",
        table(MONEY, money),
        "Who gains, over no trade. Welfare: both sides in money, each by what money is worth to "
        "it. Messages: questions that an owner answers on average (- where none). Lying: "
        "the most that an owner gains by it, first seed; - where a budget cuts deals that were "
        "made owner by owner ([without a budget](#what-lying-brings)).",
        table(GAINS, [gains_line(one) for one in found.means]),
    ]


MONEY = ["budget", "mechanism", "paid", "accuracy, %", "over no trade", "below the best", "CPU s"]
GAINS = [
    *("budget", "mechanism", "curator's value", "owners' surplus", "welfare", "epsilon sold"),
    *("worse off", "lying", "messages"),
]


def _same(found: Stored) -> str:
    if not found.same:
        return ""
    return (
        f" Pairs that signed the same contracts in every seed ({len(found.same)}) are "
        "not compared (=)."
    )


def money_line(one: Mean, found: Stored, best: str) -> list[str]:
    """A row of the first table."""
    words, budget = head_of_mechanism(one.mechanism), one.budget
    below = marked(found.between(budget, one.mechanism, best))
    if one.mechanism == best:
        words, below = f"**{words}**", ""
    elif found.bought_the_same(budget, one.mechanism, best):
        below = "="
    over = marked(found.between(budget, one.mechanism, found.nothing.mechanism))
    if found.bought_the_same(budget, one.mechanism, found.nothing.mechanism):
        over = "="
    return [
        budget_in_words(budget), words, f"{one.mean['paid']:.0f}", accuracy_in_words(one), over,
        below, f"{one.mean['seconds']:.2g}",
    ]  # fmt: skip


def gains_line(one: Mean) -> list[str]:
    """A row of the second table."""
    mean = one.mean

    def cell(name: str, form: str) -> str:
        value = mean[name]
        return "-" if value is None else format(value, form)

    return [
        budget_in_words(one.budget), head_of_mechanism(one.mechanism),
        cell("curator_value", ".1f"), cell("owners_surplus", ".1f"),
        cell("social_welfare", ",.0f"), cell("epsilon_sold", ".0f"), cell("worse_off", "g"),
        cell("lying_gain", ".2f"),
        cell("messages", ",.1f" if (mean["messages"] or 0.0) < 100.0 else ",.0f"),
    ]  # fmt: skip


def frontier_findings(found: Stored) -> str:
    """What the table says of the clock auction and DyPP, budget by budget."""
    words = []
    for budget in found.budgets:
        points, sure = found.between(budget, "clock", "dypp")
        how = "more" if points > 0 else "less"
        certain = "" if sure else " (which may be chance)"
        clock, papers = (found.value(name, budget, "paid") for name in ("clock", "dypp"))
        words.append(
            f"With {budget:g} the clock auction brings {abs(points):.2f} points {how} than "
            f"DyPP{certain}; it pays {clock:.0f}, DyPP {papers:.0f}."
        )
    return " ".join(words)


def rounds_figure(found: Stored) -> list[str]:
    """Accuracy over the rounds, where the campaign kept it."""
    if found.rounds():
        return ["![Accuracy over the rounds](../images/results-rounds.png)"]
    return [f"Accuracy over the rounds was not kept: `{RUN}` does, and its figure is drawn here."]


def no_floor_part() -> list[str]:
    """The same where owners sell all their noise if that is paid."""
    title, found = "### If owners sell all their noise", campaign(NO_FLOOR)
    if found is None:
        return [title, not_measured(f"{RUN} --no-floor")]
    lines = []
    for one in found.means:
        if one.mechanism in SHORT:
            rows = [row for row in found.rows
                    if (row.mechanism, row.budget) == (one.mechanism, one.budget)]  # fmt: skip
            boundless = sum(row.epsilon_sold is None for row in rows)
            gain = (one.mean["accuracy"] or 0.0) - (found.nothing.mean["accuracy"] or 0.0)
            lines.append(
                [
                    budget_in_words(one.budget), head_of_mechanism(one.mechanism),
                    f"{one.mean['paid']:.0f}", accuracy_in_words(one), f"{gain:+.2f}",
                    f"{boundless} of {len(rows)} seeds",
                ]
            )  # fmt: skip
    heads = ["budget", "mechanism", "paid", "accuracy, %", "over no trade", "epsilon without bound"]
    return [
        title,
        FIGURE.format("results-no-floor"),
        "No owner has to keep noise here. Mechanisms that buy owner by owner may then buy all the "
        "noise of a few, who are left without any bound on epsilon, and the model rests on their "
        f"data without noise; sellers to the clock auction keep 0.1. Same setting otherwise, "
        f"{found.nothing.seeds} seeds.",
        table(heads, lines),
        made_by(found.document),
    ]


SHORT = ("clock", "pain_fl", "bisection", "dypp", "q_learning", "best_portfolio")
"""Mechanisms of the short table."""


def cnn_part() -> list[str]:
    """The frontier on the paper's model, which few seeds can afford."""
    title, found = "## The same on the CNN", campaign(CNN)
    if found is None:
        return [title, not_measured("python -m benchmarks campaign --cnn")]
    return [
        title,
        FIGURE.format("results-cnn"),
        f"{about(found)} All decide by the loss surface of the CNN. Every owner keeps noise 0.1 at "
        f"least. No trade: {accuracy_in_words(found.nothing)} %. With so few seeds "
        "intervals are wide (the figure cuts them), and few differences are more than chance.",
        *money_tables(found),
        frontier_findings(found),
        made_by(found.document),
    ]
