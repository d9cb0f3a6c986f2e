"""What `noisemarket run` ends with, as the README shows it."""

from __future__ import annotations

import textwrap

from benchmarks.results_page.common import Document, stored
from noisemarket.show.style import name_of

WIDTH = 120


def demo_in_words() -> str | None:
    """What its table says, from the stored run, if there is one."""
    found = stored("demo")
    return None if found is None else textwrap.fill(_in_words(found), WIDTH)


def _in_words(found: Document) -> str:
    rows = {row["name"]: row for row in found["alternatives"]}
    market, none, best = rows["market"], rows["uniform_dp"], rows["best_portfolio"]
    gain, most = (one["mean_accuracy"] - none["mean_accuracy"] for one in (market, best))
    each, carried = market["paid"] / market["sellers"], 100 * found["sellers_weight"]
    drawn = market["accuracies"]
    words = (
        f"Of {found['owners']} owners {market['sellers']} gave up noise, for "
        f"{each:.1f} units each on average. Weighted by their noise they carry {carried:.0f} % of "
        f"the model, which gained {gain:.1f} points. A curator that knows all costs gains "
        f"{most:.1f} for at most that money (it spends {best['paid']:g})."
    )
    beside = rows.get("clock") or rows["dypp"]
    name = name_of(beside["mechanism"] or beside["name"])
    if beside["sellers"]:
        more = beside["mean_accuracy"] - none["mean_accuracy"]
        words += f" The {name} gains {more:.1f} for {beside['paid']:g}."
    else:
        words += f" {name} finds no trade that pays on this model."
    return words + (
        f" Noise is drawn again in every run: the market's draws differ by "
        f"{max(drawn) - min(drawn):.1f} points."
    )
