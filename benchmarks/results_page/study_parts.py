"""The studies beside the campaign: one table and one sentence each."""

from __future__ import annotations

import numpy as np

from benchmarks.results_page.common import Document, made_by, not_measured, pm, stored, table
from noisemarket.show.style import listed, name_of

CHANGING = ["", "back after the first change", "after the second", "gain at the end"]


MILLION = 1_000_000


def market_part() -> list[str]:
    """What each mechanism buys for the default job, trained, without a budget."""
    title = "## The whole market"
    command = "noisemarket compare --mechanisms dypp,clock,best_portfolio --seeds 10 --budgets none"
    found = stored("whole-market")
    if found is None:
        return [title, not_measured(command)]
    ends: dict[str, list[Document]] = {}
    for row in found["rows"]:
        ends.setdefault(row["mechanism"], []).append(row)
    base = [row["accuracy"] for row in ends["uniform"]]
    lines = []
    for name, rows in ends.items():
        gains = [row["accuracy"] - none for row, none in zip(rows, base, strict=True)]
        names = ("paid", "sellers", "predicted_value", "trained_value")
        figures = [pm([row[one] for row in rows], 0) for one in names]
        over = "" if name == "uniform" else f"{np.mean(gains):+.1f} ± {pm(gains).split('± ')[1]}"
        lines.append([name_of(name), pm([row["accuracy"] for row in rows]), over, *figures])
    heads = ["", "accuracy, %", "points over no trade", "paid", "sellers"]
    heads += ["curator's value, predicted", "as trained"]
    return [
        title,
        f"The default job, {len(base)} seeds of owners, noise and learning, no budget. The "
        "value is that over no trade: before, by the loss surface, and after, by the trained "
        "accuracy.",
        table(heads, lines),
        "The clock auction buys more than DyPP for less than half of the money; operators "
        "should use it (`--mechanism clock`).",
        made_by(found),
    ]


def lying_part() -> list[str]:
    """What lying brings, mechanism by mechanism."""
    title = "## What lying brings"
    found = stored("lying")
    if found is None:
        return [title, not_measured("python -m benchmarks studies lying")]
    lines, truthful = [], []
    for row in found["rows"]:
        if not sum(row["sellers"]):
            continue
        unknown = None in row["mean"]
        if not unknown and not any(row["most"]):
            truthful.append(row["mechanism"])
        lines.append(
            [
                SURFACE_WORDS.get(row["surface"], row["surface"]),
                name_of(row["mechanism"]),
                "-" if unknown else pm(row["mean"], 4),
                "-" if unknown else f"{max(row['most']):.3f}",
                pm(row["honest"], 4),
                f"{np.mean(row['sellers']):.0f}",
            ]
        )
    idle = [
        f"{name_of(row['mechanism'])} ({SURFACE_WORDS.get(row['surface'])})"
        for row in found["rows"]
        if not sum(row["sellers"])
    ]
    names = [name_of(name) for name in dict.fromkeys(truthful)]
    who = f"No owner gains anything by lying to {listed(names)}. " if names else ""
    rest = f" Without any trade, and so left out: {listed(idle)}." if idle else ""
    heads = ["surface", "mechanism", "a lie, mean", "a lie, most", "honest surplus", "sellers"]
    return [
        title,
        f"{who}What the best lie brings an owner over its honest answer, in its payoff, without a "
        f"budget: mean over owners and {found['seeds']} seeds, and the most of any owner of any "
        "seed; beside it an honest owner's mean surplus. Exact over all that an owner could "
        "say; for learners, the best response to the curator's final policy, per interaction; "
        f"- where nobody is asked.{rest}",
        table(heads, lines),
        made_by(found),
    ]


SURFACE_WORDS = {"sharded-mnist": "CNN", "features-mnist": "features"}


def cheats_part() -> list[str]:
    """Poisoners and free riders."""
    title = "## Poisoners and free riders"
    found = stored("cheats")
    if found is None:
        return [title, not_measured("python -m benchmarks cheats --poison")]
    poisoners = [row for row in found["rows"] if row["cheat"] != RIDER]
    riders = [row for row in found["rows"] if row["cheat"] == RIDER]
    defences, owners = found["defences"], found["owners"]
    return [
        title,
        f"Features, {owners} owners, {found['rounds']} rounds, one seed. A tenth of the owners has "
        "sold down to noise 0.1; half of the cheats are among them if there are enough. "
        "The curator has records of its own. [What is checked](market.md), [every "
        "cheat](market.md#which-cheats-are-found).",
        f"{cheats_finding(poisoners, defences)} Test accuracy in per cent; in brackets, if any, "
        "how many of the cheats are found, and how many more are not paid:",
        table(
            ["poisoners", "what they send", *defences],
            [[_who(row, owners), _sent(row), *_accuracies(row)] for row in poisoners],
        ),
        "Free riders train nothing and send the right noise. How many are found, and how many "
        "are paid anyway:",
        table(
            ["free riders", "", *defences],
            [line for row in riders for line in rider_lines(row, owners)],
        ),
        made_by(found),
    ]


RIDER = "free_rider"


def _who(row: Document, owners: int) -> str:
    return f"{row['cheats']} of {owners}" if row["cheats"] else "none"


def _sent(row: Document) -> str:
    return f"`{row['cheat']}`" if row["cheats"] else ""


def _accuracies(row: Document) -> list[str]:
    cells = zip(row["accuracies"], row["found"], row["unpaid"], strict=True)
    return [
        f"{one:.1f}" + (f" ({seen}, {max(unpaid - seen, 0)})" if seen or unpaid else "")
        for one, seen, unpaid in cells
    ]


def rider_lines(row: Document, owners: int) -> list[list[str]]:
    """Accuracy, then those that sold and those that did not."""
    sold, others = row["sellers"], row["cheats"] - row["sellers"]
    of_sellers = [f"{sold - one} of {sold}" for one in row["unpaid_sellers"]]
    rest = [
        f"{others - every + one} of {others}"
        for one, every in zip(row["unpaid_sellers"], row["unpaid"], strict=True)
    ]
    return [
        [_who(row, owners), "accuracy", *(f"{one:.1f}" for one in row["accuracies"])],
        ["", "found", *(f"{one} of {row['cheats']}" for one in row["found"])],
        *([["", "of those that sold, paid", *of_sellers]] if sold else []),
        *([["", "of the others, paid", *rest]] if others else []),
    ]


def cheats_finding(rows: list[Document], defences: list[str]) -> str:
    """The worst that poisoners do under each defence."""
    worst = [
        min((row["accuracies"][at], row["cheat"]) for row in rows if row["cheats"])
        for at in range(len(defences))
    ]
    words = [
        f"{low:.1f} % by `{kind}` ({defence})"
        for (low, kind), defence in zip(worst, defences, strict=True)
    ]
    return f"The worst that poisoners bring the model to: {listed(words)}."
