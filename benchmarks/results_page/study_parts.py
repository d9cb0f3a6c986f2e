"""The studies beside the campaign: one table and one sentence each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.results_page.common import Document, made_by, not_measured, pm, stored, table
from noisemarket.show.style import listed, name_of
from noisemarket.study.results import NO_TRADE

HEADS = ["", "accuracy, %", "points over no trade", "paid", "sellers", "epsilon sold"]
SHORT = (NO_TRADE, "dypp", "clock", "best_portfolio")


def market_rows(found: Document, names: Sequence[str] | None = None) -> list[list[str]]:
    """Each mechanism with the stated budget: ``HEADS``."""
    ends: dict[str, list[Document]] = {}
    for row in found["rows"]:
        if row["budget"] == found.get("budget") or row["mechanism"] == NO_TRADE:
            ends.setdefault(row["mechanism"], []).append(row)
    base = {row["seed"]: row["accuracy"] for row in ends[NO_TRADE]}
    lines = []
    for name in names or ends:
        rows = [*{row["seed"]: row for row in ends[name]}.values()]
        gains = [row["accuracy"] - base[row["seed"]] for row in rows]
        over = "" if name == NO_TRADE else f"{np.mean(gains):+.1f} ± {pm(gains).split('± ')[1]}"
        figures = [pm([row[one] for row in rows], 0) for one in ("paid", "sellers")]
        bounded = [row["epsilon_sold"] for row in rows if row["epsilon_sold"] is not None]
        sold = f"{np.mean(bounded):.1f}" if bounded else "no bound"
        if bounded and len(bounded) < len(rows):
            sold += f" (no bound in {len(rows) - len(bounded)} of {len(rows)} seeds)"
        accuracy = pm([row["accuracy"] for row in rows])
        lines.append([name_of(name), accuracy, over, *figures, sold])
    return lines


def readme_market() -> str | None:
    """The table of the README."""
    found = stored("campaign")
    if found is None:
        return None
    shown = table(HEADS, market_rows(found, SHORT))
    seeds = len(found["seeds"])
    return f"{shown}\n\n`{found['command']}`; ± is half of the 95 % interval over {seeds} seeds."


def fars_part() -> list[str]:
    """Real owners: accuracy by noise, and what the market buys, with 51 states."""
    title, found, market = "## Real owners: 51 states", stored("fars"), stored("fars-market")
    if found is None:
        return [title, not_measured("python -m benchmarks studies fars")]
    names = {0: "without a trade", 6: "with six sellers", 51: "if all sell"}
    reached = [
        f"{row['accuracy']:.1f} % {names[row['sellers']]}"
        + (f" down to sigma {row['sigma']:g}" if row["sellers"] else "")
        for row in found["rows"]
    ]
    parts = [
        title,
        "The preset `fars`: persons in fatal crashes, 51 states with 149 to 7,990 records of their "
        "own, 30 rounds. The most frequent of five classes has 42.1 % of the records. The model "
        f"reaches {listed(reached)} (means of {found['seeds']} seeds, {made_by(found)}).",
    ]
    if market is not None:
        parts += [
            f"The whole market, {len(market['seeds'])} seeds, with a budget of "
            f"{market['budget']:g}, which nobody uses up:",
            table(HEADS, market_rows(market)),
            made_by(market),
        ]
    return parts


def market_part() -> list[str]:
    """What each mechanism buys for the default job, trained, without a budget."""
    title, found = "## The whole market", stored("campaign")
    if found is None:
        return [title, not_measured("python -m benchmarks campaign")]
    return [
        title,
        f"The default job, {len(found['seeds'])} seeds of owners, noise and learning, no budget. "
        "The epsilon sold is that of all owners over no trade; there is no bound where a seller "
        "keeps no noise.",
        table(HEADS, market_rows(found)),
        made_by(found),
        *elsewhere_part(),
    ]


def elsewhere_part() -> list[str]:
    """The same on other data, and with fewer and more owners."""
    title, found = "### Other data, fewer and more owners", stored("elsewhere")
    if found is None:
        return [title, not_measured("python -m benchmarks campaign --elsewhere")]
    lines = []
    for market, one in found["markets"].items():
        rows = {line[0]: line for line in market_rows(one)}
        ends = [rows[name_of(name)] for name in SHORT]
        lines.append([market, ends[0][1], *(f"{end[1]} for {end[3]}" for end in ends[1:])])
    small = stored("small-markets")
    below = ""
    if small is not None:
        parts = [
            f"{name_of(name)} {one['mean_points']:+.1f} points, below no trade in "
            f"{one['below_no_trade']} of {one['populations']} populations"
            for name, one in small["summary"].items()
        ]
        below = f" Ten owners again (`{small['command']}`): {listed(parts)}."
    return [
        title,
        "Accuracy in per cent, and money paid. In half of the markets of ten owners the clock buys "
        f"nothing: nobody sells down to its floor for the highest payment.{below}",
        table(["market", *map(name_of, SHORT)], lines),
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
        if row["surface"] != "features-mnist":
            continue
        lines.append(
            [
                name_of(row["mechanism"]),
                pm(row["mean"], 4),
                f"{max(row['most']):.3f}",
                pm(row["honest"], 4),
            ]
        )
    names = [name_of(name) for name in dict.fromkeys(truthful)]
    who = f"No owner gains anything by lying to {listed(names)}. " if names else ""
    heads = ["mechanism", "a lie, mean", "a lie, most", "honest surplus"]
    return [
        title,
        f"{who}To the others, the best lie brings an owner this over its honest answer, as payoff, "
        f"without a budget: mean over owners and {found['seeds']} seeds, the most of any owner, "
        "and an honest owner's mean surplus.",
        table(heads, lines),
        made_by(found),
    ]


POISONS = "push", "soft_push", "wrong_labels", "free_rider", "backdoor"
SIGMAS = 0.1, 0.3, 0.6
KEPT_SIGMA, FEW = 0.6, "a tenth"


def cheats_part() -> list[str]:
    """Poisoners, free riders and backdoors."""
    title = "## Poisoners and free riders"
    found = stored("cheats")
    if found is None:
        return [title, not_measured("python -m benchmarks cheats --poison")]
    kinds = {
        (row["owners"], row["sold"], row["sigma"], row["cheat"], row["cheats"]): row
        for row in found["rows"]
    }
    jobs = {key[:2]: None for key in kinds}
    lines = [
        cheats_line(job, count, kinds)
        for job in jobs
        for count in sorted({key[4] for key in kinds if key[:2] == job} - {0})
    ]
    honest = [row["accuracies"] for row in found["rows"] if not row["cheats"]]
    widest = max(float(pm(accuracies).split()[-1]) for accuracies in honest)
    paid = sum(row["paid"] for row in found["rows"])
    played = sum(row["cheats"] * len(row["accuracies"]) for row in found["rows"])
    return [
        title,
        f"Cheats whose noise is right pass every test: {paid:,} of {played:,} were paid. [The "
        "limits of the market](market.md#bounding-the-harm) bound what they do. Features, 20,000 "
        f"records of MNIST, {found['rounds']} rounds, "
        f"{found['seeds']} seeds; a tenth of the owners, at least two, or all have sold, the "
        "others keep 0.6, and the cheats are among the sellers, who weigh most.",
        "Points of accuracy that cheats cost ([what they do](market.md#which-cheats-are-found)) "
        f"at the sellers' sigma {'/'.join(f'{sigma:g}' for sigma in SIGMAS)} (at 0.6 nobody "
        f"has sold). Accuracies are ± {widest:.1f} at most: a small cost is chance. "
        "The last column: per cent of test records of other classes taken for class 0 if they "
        "bear the backdoor's mark; without a cheat at most 3.",
        table(
            ["owners", "sold", "cheats", "accuracy without", "push", "soft push",
             "wrong labels", "free rider", "backdoor", "backdoor opens"], lines,
        ),
        made_by(found),
        *_honest_part(),
    ]  # fmt: skip


def _honest_part() -> list[str]:
    """Whether honest owners are accused."""
    if (found := stored("honest-owners")) is None:
        return [not_measured("python -m benchmarks cheats --honest")]
    jobs, owners, accused, unpaid = (
        sum(row[name] for row in found["rows"]) for name in ("jobs", "owners", "accused", "unpaid")
    )
    return [
        f"Honest owners: in {jobs:,} jobs of {found['owners']} owners and {found['rounds']} "
        "rounds, at sigma 0.1, 0.3 and 0.6, from even to very uneven data, "
        f"{accused or 'none'} of {owners:,} {'was' if accused == 1 else 'were'} accused, and "
        f"{unpaid or 'none'} went unpaid ({made_by(found)}).",
    ]


Job = tuple[int, str]
Kinds = dict[tuple[int, str, float, str, int], Document]


def cheats_line(job: Job, count: int, kinds: Kinds) -> list[str]:
    """What so many cheats of each kind cost in a job, at every sigma of the sellers."""

    def at(sigma: float, kind: str) -> Document:
        """One case. Where the sellers keep what all keep, nobody has sold: the same job."""
        sold = job[1] if sigma != KEPT_SIGMA else FEW
        return kinds[(job[0], sold, sigma, kind, count if kind != "none" else 0)]

    def mean(sigma: float, kind: str) -> float:
        return float(np.mean(at(sigma, kind)["accuracies"]))

    lost = [
        "/".join(f"{mean(sigma, 'none') - mean(sigma, kind):.1f}" for sigma in SIGMAS)
        for kind in POISONS
    ]
    return [
        str(job[0]), job[1], str(count),
        "/".join(f"{mean(sigma, 'none'):.1f}" for sigma in SIGMAS), *lost,
        "/".join(f"{np.mean(at(sigma, 'backdoor')['opened']):.0f}" for sigma in SIGMAS),
    ]  # fmt: skip
