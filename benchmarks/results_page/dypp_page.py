"""What the page of results and the README say about DyPP.

Sentences whose truth depends on numbers are computed. What is said in fixed words all the same is
listed in ``claims``: ``tests/test_results_pages.py`` fails when one of them becomes false.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from textwrap import fill
from typing import Any

import numpy as np

from benchmarks.results_page.campaigns import (
    Stored,
    accuracy_in_words,
    campaign,
    marked,
)
from benchmarks.results_page.common import ROOT, Document, made_by, pm, stored, table
from noisemarket.show.comparison_report import knows
from noisemarket.show.style import listed, name_of

REPRODUCED = ROOT / "benchmarks" / "results" / "reproduction" / "claims.json"
OTHERS = ("clock", "bisection", "q_learning", "pain_fl")


def needed() -> dict[str, Any]:
    """All that the page rests on; it cannot be made without."""
    return {
        "campaign": campaign(),
        "adaptation": stored("adaptation"),
        "sensitivity": stored("sensitivity"),
        "lying": stored("lying"),
        "claims": json.loads(REPRODUCED.read_text(encoding="utf-8")),
    }


def dypp_parts() -> list[str]:
    """What was found about DyPP; nothing where a result that it needs is not stored."""
    found = needed()
    if None in found.values():
        return []
    return [
        *money_section(found["campaign"]),
        *claims_section(found["claims"]),
        *change_section(found["adaptation"]),
        *open_section(found["sensitivity"]),
    ]


def money_section(found: Stored) -> list[str]:
    """The same money and the same owners for all."""
    lines = []
    for budget in found.budgets:
        cells = [f"{accuracy_in_words(found.at('dypp', budget))}"]
        cells += [marked(found.between(budget, "dypp", name)) for name in OTHERS]
        lines.append([limit(budget), *cells])
    heads = ["budget", "DyPP, %", *(f"less {name_of(name)}" for name in OTHERS)]
    return [
        "## For the same money",
        "![Accuracy over money paid](../images/frontier.png)",
        "The same markets under a budget. Accuracy of the trained model, and points by which DyPP "
        "is ahead (* more than chance):",
        table(heads, lines),
        ahead(found),
    ]


def limit(budget: float | None) -> str:
    return "none" if budget is None else f"{budget:g}"


def ahead(found: Stored) -> str:
    """Where DyPP is ahead of whom by more than chance, and where it is behind."""
    words = []
    for sign, verb in ((1.0, "ahead of"), (-1.0, "behind")):
        some = []
        for name in OTHERS:
            budgets = [
                limit(budget)
                for budget in found.budgets
                if found.between(budget, "dypp", name)[1]
                and sign * found.between(budget, "dypp", name)[0] > 0
            ]
            if budgets:
                some.append(f"{name_of(name)} (budget {listed(budgets)})")
        words.append(f"{verb} {listed(some)}" if some else f"{verb} none of them")
    return f"By more than chance DyPP is {words[0]}, and {words[1]}."


def numbers_of(claims: list[Mapping[str, str]], begins: str, preset: str) -> str:
    """What was counted for a claim of the paper."""
    return next(
        one["numbers"]
        for one in claims
        if one["claim"].startswith(begins) and one["scenario"] == preset
    )


def cut(pattern: str, text: str) -> tuple[str, ...]:
    """The groups of a pattern that must be in a text."""
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"{pattern!r} is not in {text!r}")
    return found.groups()


def verdicts(claims: list[Mapping[str, str]]) -> list[list[str]]:
    """Each claim with what was seen under each preset."""
    return [
        [claim, *(next((one["seen"] for one in claims
                        if (one["claim"], one["scenario"]) == (claim, preset)), "")
                  for preset in ("paper", "market"))]
        for claim in dict.fromkeys(one["claim"] for one in claims)
    ]  # fmt: skip


def claims_section(claims: list[Mapping[str, str]]) -> list[str]:
    """What holds of the paper's claims and what does not, claim by claim."""
    (share,) = cut(
        r"([\d.]+ ± [\d.]+ %) of the exact", numbers_of(claims, "WoLF-PHC conv", "market")
    )
    better = numbers_of(claims, "WoLF-PHC gives better", "market")
    signed = cut(r"contracts ([\d.]+ ± [\d.]+) against ([\d.]+ ± [\d.]+)", better)
    played = cut(r"as played ([\d.]+ ± [\d.]+) against ([\d.]+ ± [\d.]+)", better)
    paid = cut(r"from ([\d.]+ ± [\d.]+) to ([\d.]+ ± [\d.]+)",
               numbers_of(claims, "Payments keep", "market"))  # fmt: skip
    return [
        "## The paper's claims",
        "`noisemarket reproduce` plays the paper's game on its printed surface (100 owners, 10,000 "
        "iterations, 20 seeds), as printed (`paper`) and as its workflow means it (`market`: a "
        "deal needs two signatures, [why](paper.md#errata); without `learning.reopen`), and judges "
        "each claim at 99.8 % (partly: the right way, but turning back by more than 5 %):",
        table(["claim", "`paper`", "`market`"], verdicts(claims)),
        "![Noise saving of the owners over the iterations]"
        "(../../benchmarks/results/reproduction/convergence-saving.png)",
        "![Payment of the curator over the iterations]"
        "(../../benchmarks/results/reproduction/convergence-payment.png)",
        "DyPP works without private information, as the paper says. Besides:",
        "\n".join(
            [
                f"- **Equilibrium.** In `market` the curator gets {share} of the exact "
                "equilibrium's gain: play stops before the best deal was tried often enough.",
                f"- **Quality.** By what is signed {signed[0]} against {signed[1]} % with "
                f"Q-learning; savings as played {played[0]} against {played[1]}, because a "
                "tenth of Q-learning's moves stay random.",
                f"- **Payments** rise from {paid[0]} to {paid[1]} in `market`, because random "
                "proposals mostly fail to be signed.",
            ]
        ),
    ]


def adaptation_rows(found: Document, player: str) -> list[Document]:
    """What became of a player at each change."""
    return [row for row in found["rows"] if row["player"] == player]


def recovered(rows: list[Document]) -> tuple[int, int]:
    """In how many runs of how many a player is back."""
    runs = [one for row in rows for one in row["recovered_after"]]
    return sum(one is not None for one in runs), len(runs)


def change_section(found: Document) -> list[str]:
    """Preferences that change."""
    again = stored("reopen")
    anew = ""
    if again is not None:
        reach = [
            f"{100 * again[change]['reopen over fresh start']:.0f} % (costs {change})"
            for change in ("halve", "double")
        ]
        anew = (
            " So `learning.reopen`, the default of `market`, makes players start anew: they reach "
            f"{listed(reach)} of a fresh start's gain (`{again['command']}`)."
        )
    counts = {
        name: recovered(adaptation_rows(found, name))
        for name in ("dypp as printed", "dypp", "q_learning")
    }
    falls = [
        f"from {pm(row['before'], 0, 100)} % to {pm(row['after'], 0, 100)} % when costs "
        f"{'halve' if row['factor'] < 1 else 'double'}"
        for row in adaptation_rows(found, "dypp as printed")
    ]
    back = {name: f"{one} of {of}" for name, (one, of) in counts.items()}
    half = found["rows"][0]["interactions"] // 2
    return [
        "## When costs change",
        "![Curator's gain before and after all costs change](../images/dypp-adaptation.png)",
        f"As printed, DyPP is back at 95 % of what it had in {back['dypp as printed']} runs of "
        f"{half:,} interactions before and after: its share of the equilibrium's gain moves "
        f"{listed(falls)}. With "
        f"`learning.reopen` it is back in {back['dypp']}, Q-learning in "
        f"{back['q_learning']}.{anew}",
        made_by(found),
    ]


def open_section(found: Document) -> list[str]:
    """What the paper leaves open."""
    shares = {
        (row["setting"], row["value"]): [
            a / b for a, b in zip(row["dypp"], row["equilibrium"], strict=True)
        ]
        for row in found["rows"]
        if min(row["equilibrium"]) > 1e-9
    }
    spans = {
        name: np.ptp([np.mean(own) for (one, _), own in shares.items() if one == name])
        for name in dict.fromkeys(one for one, _ in shares)
    }
    most = max(spans, key=lambda name: spans[name])
    low, high = (choose(shares, key=lambda one: np.mean(shares[one])) for choose in (min, max))
    zero = shares["optimism", 0.0]
    return [
        "## What the paper leaves open",
        "![Share of the equilibrium's gain under settings that the paper leaves open]"
        "(../images/dypp-sensitivity.png)",
        f"With first values of 0, DyPP's contracts bring {pm(zero, 0, 100)} % of the equilibrium's "
        f"gain. One setting at a time, it is least with {_setting(*low)} "
        f"({pm(shares[low], 0, 100)} %) and most with {_setting(*high)} "
        f"({pm(shares[high], 0, 100)} %); the {most.replace('_', ' ')} moves it most.",
    ]


def _setting(name: str, value: object) -> str:
    words = f"{value:,}" if isinstance(value, int) else str(value)
    return f"{name.replace('_', ' ')} {words}"


INSTEAD = (
    "## What to use instead",
    "- **Accuracy for a budget**: `clock`. No mechanism without private knowledge whose sellers "
    "all keep some noise is ahead of it by more than chance; it asks an owner at most 36 "
    "questions instead of 5,000; [lying brings nothing](#what-lying-brings). Bisection and the "
    "learners may leave an owner without noise: its `floor` forbids it.\n"
    "- **The paper's game, owner by owner**: [`bisection`](mechanisms.md#bisection), in some 20 "
    "steps; but [lying pays](#what-lying-brings).\n"
    "- **To study learning**: `dypp`, `q_learning`, `phc`.",
)


def claims() -> dict[str, bool]:
    """What the page says in fixed words, and whether stored results bear it out."""
    found = needed()
    floored, lies = found["campaign"], found["lying"]
    most = {
        (row["surface"], row["mechanism"]): max(one or 0.0 for one in row["most"])
        for row in lies["rows"]
    }
    return {
        "lying to the clock brings nothing": most["sharded-mnist", "clock"] == 0
        and most["features-mnist", "clock"] == 0,
        "lying to bisection pays": most["sharded-mnist", "bisection"] > 0,
        "nobody whose sellers keep noise is ahead of the clock by more than chance": not any(
            sure and points < 0
            for budget in floored.budgets
            for points, sure in (
                floored.between(budget, "clock", name)
                for name in floored.names
                if knows(name).startswith("nothing") and floored.bounded(name)
            )
        ),
    }


def readme_claims() -> str:
    """The verdicts on `market` in a few words, for the README."""
    said = json.loads(REPRODUCED.read_text(encoding="utf-8"))
    found = {one["claim"]: one["seen"] for one in said if one["scenario"] == "market"}
    seen = [claim for claim, verdict in found.items() if verdict == "yes"]
    never = [claim for claim, verdict in found.items() if verdict.startswith("no")]
    rest = len(found) - len(seen) - len(never)
    lines = [
        f"- **Seen**: {'; '.join(map(_small, seen))}.",
        f"- **Not seen**: {'; '.join(map(_small, never))}.",
        f"- {rest} more depend on how one counts or how long one plays.",
    ]
    return "\n".join(fill(line, 120, subsequent_indent="  ") for line in lines)


def _small(claim: str) -> str:
    return claim if claim[1].isupper() or claim.startswith("WoLF") else claim[0].lower() + claim[1:]
