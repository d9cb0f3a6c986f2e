"""The studies beside the campaign: one table and one sentence each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.results_page.common import Document, made_by, not_measured, pm, stored, table
from noisemarket.show.style import listed, name_of
from noisemarket.study.results import NO_TRADE

HEADS = ["", "accuracy, %", "points over no trade", "paid", "sellers", "highest epsilon"]
SHORT = (NO_TRADE, "dypp", "clock", "best_portfolio")


def market_rows(found: Document, names: Sequence[str] | None = None) -> list[list[str]]:
    """Each mechanism without a budget: ``HEADS``, and the curator's value in two columns."""
    ends: dict[str, list[Document]] = {}
    for row in found["rows"]:
        if row["budget"] is None or row["mechanism"] == NO_TRADE:
            ends.setdefault(row["mechanism"], []).append(row)
    base = {row["seed"]: row["accuracy"] for row in ends[NO_TRADE]}
    lines = []
    for name in names or ends:
        rows = [*{row["seed"]: row for row in ends[name]}.values()]
        gains = [row["accuracy"] - base[row["seed"]] for row in rows]
        over = "" if name == NO_TRADE else f"{np.mean(gains):+.1f} ± {pm(gains).split('± ')[1]}"
        figures = [pm([row[one] for row in rows], 0) for one in ("paid", "sellers")]
        epsilons = [row["epsilon_sold"] for row in rows]
        highest = "no bound" if None in epsilons else f"{max(epsilons):.2f}"
        values = [pm([row[one] for row in rows], 0) for one in ("predicted_value", "trained_value")]
        accuracy = pm([row["accuracy"] for row in rows])
        lines.append([name_of(name), accuracy, over, *figures, highest, *values])
    return lines


def readme_market() -> str | None:
    """The table of the README."""
    found = stored("campaign")
    if found is None:
        return None
    shown = table(HEADS, [line[: len(HEADS)] for line in market_rows(found, SHORT)])
    seeds = len(found["seeds"])
    return f"{shown}\n\n`{found['command']}`; ± is half of the 95 % interval over {seeds} seeds."


def market_part() -> list[str]:
    """What each mechanism buys for the default job, trained, without a budget."""
    title, found = "## The whole market", stored("campaign")
    if found is None:
        return [title, not_measured("python -m benchmarks campaign")]
    return [
        title,
        f"The default job, {len(found['seeds'])} seeds of owners, noise and learning, no budget. "
        "The highest epsilon is that of any seller. The curator's value is over no trade: "
        "predicted by the loss surface before training, and by the trained accuracy less payments.",
        table([*HEADS, "curator's value, predicted", "as trained"], market_rows(found)),
        "The clock auction buys more than DyPP for less than half of the money: to operate a "
        "market, use it (`--mechanism clock`).",
        made_by(found),
        *elsewhere_part(),
    ]


def elsewhere_part() -> list[str]:
    """The same on other data, and with fewer and more owners."""
    title, found = "### Other data, fewer and more owners", stored("elsewhere")
    if found is None:
        return [title, not_measured("python -m benchmarks campaign --elsewhere")]
    lines = [
        [market, *line[: len(HEADS)]]
        for market, one in found["markets"].items()
        for line in market_rows(one)
    ]
    small = stored("small-markets")
    below = ""
    if small is not None:
        parts = [
            f"{name_of(name)} ends below no trade in {one['below_no_trade']} of "
            f"{one['populations']} populations ({one['mean_points']:+.1f} points on average)"
            for name, one in small["summary"].items()
        ]
        below = f" Ten owners again (`{small['command']}`): {listed(parts)}."
    return [
        title,
        "All records are dealt out in each; every market has a loss surface measured for it. With "
        "ten owners the clock rarely buys: few of ten sell down to its floor for the highest "
        f"payment.{below}",
        table(["market", *HEADS], lines),
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
        if not sum(row["sellers"]) or None in row["mean"]:  # no trade, or nobody is asked
            continue
        if not any(row["most"]):
            truthful.append(row["mechanism"])
            continue
        lines.append(
            [
                SURFACE_WORDS.get(row["surface"], row["surface"]),
                name_of(row["mechanism"]),
                pm(row["mean"], 4),
                f"{max(row['most']):.3f}",
                pm(row["honest"], 4),
            ]
        )
    names = [name_of(name) for name in dict.fromkeys(truthful)]
    who = f"No owner gains anything by lying to {listed(names)}. " if names else ""
    heads = ["surface", "mechanism", "a lie, mean", "a lie, most", "honest surplus"]
    return [
        title,
        f"{who}To the others, the best lie brings an owner this over its honest answer, as payoff, "
        f"without a budget: mean over owners and {found['seeds']} seeds, the most of any owner, "
        "and an honest owner's mean surplus. Exact over all answers; for learners, the best "
        "response to the curator's final policy, per interaction.",
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
        "[What is checked](market.md#is-the-contracted-noise-there), [every "
        "cheat](market.md#which-cheats-are-found).",
        f"{cheats_finding(poisoners, defences)} Test accuracy in per cent; in brackets, if any, "
        "how many of the cheats are found, and how many more are not paid:",
        table(
            ["cheats", "what they send", *defences],
            [[_who(row, owners), _sent(row), *_accuracies(row)] for row in poisoners + riders],
        ),
        "Free riders train nothing and send the right noise, so no check finds them; a weight cap "
        "bounds what they spoil.",
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
