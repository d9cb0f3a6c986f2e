"""The studies beside the campaign: one table and one sentence each."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.campaign import BEST, Timing
from benchmarks.results_page.common import Document, made_by, not_measured, pm, stored, table
from noisemarket.show.comparison_report import head_of_mechanism, listed
from noisemarket.show.style import name_of
from noisemarket.study.results import NO_TRADE, half_width


def sensitivity_part() -> list[str]:
    """What the paper leaves open."""
    title = "## What the paper leaves open"
    found = stored("sensitivity")
    if found is None:
        return [title, not_measured("python -m benchmarks studies sensitivity")]
    lines, shares = [], {"dypp": [], "q_learning": []}  # type: dict[str, list[float]]
    for row in found["rows"]:
        cells = []
        for learner in ("dypp", "q_learning"):
            exact = row["equilibrium"]
            if min(exact) > 1e-9:
                some = [a / b for a, b in zip(row[learner], exact, strict=True)]
                cells.append(f"{pm(some, 0, 100)} %")
                shares[learner].append(float(np.mean(some)))
            else:
                cells.append(f"gain {pm(row[learner], 2)}")
        lines.append([row["setting"].replace("_", " "), _plain(row["value"]), *cells])
    (low, high), (least, most) = ((100 * min(one), 100 * max(one)) for one in shares.values())
    return [
        title,
        f"DyPP's contracts bring the curator between {low:.0f} and {high:.0f} % of the "
        f"equilibrium's gain, Q-learning's between {least:.0f} and {most:.0f} %, depending on what "
        "the paper does not say. One setting at a time, the others at learning rate 0.1, optimism "
        f"1, markup 0.2, protocol `signed` and 10,000 interactions; printed surface, "
        f"{found['seeds']} seeds. Where the equilibrium has no gain from trade (`simultaneous`: "
        "paying nothing is dominant), the gain itself is given.",
        table(["setting", "value", "DyPP (WoLF-PHC)", "Q-learning"], lines),
        made_by(found),
    ]


def _plain(value: object) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else f"`{value}`"
    )


def best_part() -> list[str]:
    """The sweep for the learners' best settings."""
    head = "### The learners at their best"
    found = stored("best")
    if found is None:
        return [head, not_measured("python -m benchmarks studies best")]
    means = {
        row["variant"]: [float(np.mean(one)) for one in row["shares"]] for row in found["rows"]
    }
    most = {
        learner: max(
            max(means[row["variant"]]) for row in found["rows"] if row["learner"] == learner
        )
        for learner in ("dypp", "q_learning")
    }
    lines = []
    for row in found["rows"]:
        top = most[row["learner"]]
        cells = [
            f"**{100 * one:.0f}**" if one == top else f"{100 * one:.0f}"
            for one in means[row["variant"]]
        ]
        lines.append([row["variant"], *cells])
    papers, q = BEST["dypp"], BEST["q_learning"]
    words = (
        f"DyPP reaches {100 * most['dypp']:.0f} % of the equilibrium's gain by contract, "
        f"Q-learning {100 * most['q_learning']:.0f} % (**bold**). Columns are learning rates; "
        f"optimism is 1 and exploration 0.1 unless stated. At its best elsewhere on this page "
        f"means learning rate {papers['learning_rate']:g} with optimism "
        f"{papers['owner_optimism']:g} for DyPP and {q['learning_rate']:g} with optimism 1 for "
        f"Q-learning, both with {q['iterations']:,} interactions. Means over the surfaces on which "
        f"trade pays (`printed`, `paper-mnist`, `sharded-mnist`) and {found['seeds']} seeds."
    )
    heads = ["learner, interactions", *(f"{rate:g}" for rate in found["rates"])]
    return [head, words, table(heads, lines), made_by(found)]


def adaptation_part() -> list[str]:
    """Preferences that change."""
    title = "## When preferences change"
    found = stored("adaptation")
    if found is None:
        return [title, not_measured("python -m benchmarks studies adaptation")]
    lines = []
    for row in found["rows"]:
        times = [one for one in row["recovered_after"] if one is not None]
        change = "halve" if row["factor"] < 1 else "double"
        name, _, best = row["player"].partition(" at ")
        lines.append(
            [
                change,
                name_of(name) + (" at its best" if best else ""),
                f"{row['interactions']:,}",
                f"{pm(row['before'], 0, 100)} %",
                f"{pm(row['after'], 0, 100)} %",
                f"{len(times)} of {found['seeds']}",
                f"{np.median(times):,.0f}" if times else "-",
            ]
        )
    back = [row for row in found["rows"] if row["player"].startswith("dypp")]
    count = sum(one is not None for row in back for one in row["recovered_after"])
    of = sum(len(row["recovered_after"]) for row in back)
    heads = ["costs", "", "interactions", "before", "after", "recovered", "after, median"]
    return [
        title,
        "![Curator's gain before and after all costs change](../images/dypp-adaptation.png)",
        f"DyPP recovers in {count} of {of} runs. All privacy costs change half-way; the curator's "
        "gain as played, as a share of the equilibrium's at that time; recovered: back at 95 % of "
        "what it was. Printed surface, 100 owners.",
        table(heads, lines),
        "The two changes of `examples/changing.toml` (half of the owners come to value privacy "
        "half as much; then quality is worth half to the curator), CNN surface:",
        table(CHANGING, [changing_line(row) for row in found["changing"]]),
        made_by(found),
    ]


CHANGING = ["", "back after the first change", "after the second", "gain at the end"]


def changing_line(row: Document) -> list[str]:
    """In how many seeds a player recovers from each change, and what it has at the end."""
    back = [f"{sum(one is not None for one in row[at])} of {len(row[at])} seeds"
            for at in ("first", "second")]  # fmt: skip
    return [name_of(row["player"]), *back, f"{pm(row['gain'], 0, 100)} % of the equilibrium's"]


def decision_times() -> tuple[list[Timing], list[Document]]:
    """Processor seconds to decide: the campaign's, and those of benchmarks of a million owners."""
    campaigns = (stored(name) for name in ("campaign-features", "campaign-no-floor"))
    campaign = next((one for one in campaigns if one is not None and one["growth"]), None)
    if campaign is None:
        return [], []
    times = [Timing(**row) for row in campaign["growth"]]
    names, sources = {one.mechanism for one in times}, [campaign]
    if (many := stored("mechanisms")) is not None:
        times += [
            Timing(row["mechanism"], row["owners"], row["seconds"])
            for row in many["rows"]
            if row["mechanism"] in names and row["owners"] == MILLION
        ]
        sources.append(many)
    if (million := stored("bisection-million")) is not None:
        times.append(Timing("bisection", MILLION, million["runs"][0]["cpu_seconds"]))
        sources.append(million)
    order = list(dict.fromkeys(one.mechanism for one in times))
    return sorted(times, key=lambda one: (order.index(one.mechanism), one.owners)), sources


MILLION = 1_000_000


def scale_part() -> list[str]:
    """Owners from ten to a million."""
    title = "## Owners from 10 to 1,000,000"
    times, sources = decision_times()
    if not times:
        return [title, not_measured("python -m benchmarks campaign")]
    owners = sorted({one.owners for one in times})
    lines = []
    for name in dict.fromkeys(one.mechanism for one in times):
        own = {one.owners: one.seconds for one in times if one.mechanism == name}
        cells = [f"{own[count]:.2g}" if count in own else "-" for count in owners]
        lines.append([head_of_mechanism(name), *cells])
    return [
        title,
        "Processor seconds to decide; the learners at their best, with 80,000 interactions. A "
        "mechanism that took five seconds was not asked to serve ten times as many, and - is not "
        "measured.",
        "![Processor seconds to decide over the number of owners](../images/results-scale.png)",
        table(["", *(f"{count:,}" for count in owners)], lines),
        " ".join(made_by(one) for one in sources),
    ]


def compared_table(found: Document) -> str:
    """Paid, sellers, epsilon and accuracy of a study of a few mechanisms."""
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in found["rows"]:
        groups.setdefault((row["mechanism"], row["budget"]), []).append(row)
    nothing = {
        row["seed"]: row["accuracy"] for row in found["rows"] if row["mechanism"] == NO_TRADE
    }
    lines = []
    for (name, budget), some in groups.items():
        if name == NO_TRADE and budget != found["rows"][0]["budget"]:
            continue
        gains = [row["accuracy"] - nothing[row["seed"]] for row in some]
        sold = [row["epsilon_sold"] for row in some]
        lines.append(
            [
                "" if name == NO_TRADE else f"{budget:g}",
                head_of_mechanism(name),
                f"{np.mean([row['paid'] for row in some]):.0f}",
                f"{np.mean([row['sellers'] for row in some]):.1f}",
                "-" if None in sold else f"{np.mean(sold):.0f}",
                pm([row["accuracy"] for row in some], 2),
                "" if name == NO_TRADE else f"{np.mean(gains):+.2f} ± {half_width(gains):.2f}",
            ]
        )
    heads = ["budget", "mechanism", "paid", "sellers", "epsilon sold", "accuracy, %", "gain"]
    return table(heads, lines)


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
                head_of_mechanism(row["mechanism"]),
                "-" if unknown else pm(row["mean"], 4),
                "-" if unknown else f"{max(row['most']):.3f}",
                pm(row["honest"], 4),
                f"{np.mean(row['sellers']):.0f}",
            ]
        )
    idle = [
        f"{head_of_mechanism(row['mechanism'])} ({SURFACE_WORDS.get(row['surface'])})"
        for row in found["rows"]
        if not sum(row["sellers"])
    ]
    names = [head_of_mechanism(name) for name in dict.fromkeys(truthful)]
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


def fashion_part() -> list[str]:
    """Fashion-MNIST."""
    title = "## Fashion-MNIST"
    found = stored("fashion")
    if found is None:
        return [title, not_measured("python -m benchmarks studies fashion")]
    by_sigma = [[f"{one['sigma']:g}", pm(one["accuracies"], 2)] for one in found["by_sigma"]]
    return [
        title,
        f"The same market on harder images, {found['seeds']} seeds; every owner keeps noise 0.1. "
        "All mechanisms decide by surfaces measured on MNIST: bisection and DyPP (at its best) by "
        "that of the CNN.",
        compared_table(found),
        table(["sigma of all owners", "accuracy, %"], by_sigma),
        made_by(found),
    ]


def epsilon_part() -> list[str]:
    """Owners who count epsilon."""
    title = "## Owners who count epsilon, not noise"
    found = stored("epsilon")
    if found is None:
        return [title, not_measured("python -m benchmarks studies epsilon")]
    return [
        title,
        f'`payoff = "epsilon_loss"`: the last noise costs an owner most, and sellers to the clock '
        f"keep {found['floor']:g}; {found['seeds']} seeds, features. Bisection and DyPP (at its "
        "best) play on the surface of the CNN.",
        compared_table(found),
        made_by(found),
    ]


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
