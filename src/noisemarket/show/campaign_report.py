"""Mechanisms compared through to the model: the table, what is more than chance, and the page.

The page is one file of HTML that needs nothing else: figures are inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisemarket.pricing import MECHANISMS
from noisemarket.show.style import name_of
from noisemarket.study.results import (
    LEVEL,
    NO_TRADE,
    Difference,
    Row,
    paired_differences,
    same_contracts,
)

OWN = "clock"
"""What the findings on the screen compare all others with, if it is among them."""

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("paid", "paid", "{:,.1f}"),
    ("accuracy", "accuracy", "{:.2f} %"),
    ("curator_value", "curator", "{:,.1f}"),
    ("owners_surplus", "owners", "{:,.1f}"),
    ("social_welfare", "welfare", "{:,.0f}"),
    ("worse_off", "worse off", "{:g}"),
    ("lying_gain", "lying", "{:.3f}"),
    ("messages", "messages", "{:,.0f}"),
    ("seconds", "seconds", "{:.2g}"),
)
"""Figure, head and format of each column."""

MeanRow = Mapping[str, Any]
"""A mechanism under one budget, as ``comparison.json`` has it: see ``comparison.results.Mean``."""

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; background: #fff; margin: 2rem auto;
       max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; font-weight: 600; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e2e2e2; text-align: right; }
th:nth-child(2), td:nth-child(2) { text-align: left; } svg { max-width: 100%; height: auto; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
"""
_CAPTIONS = {
    "frontier": "Accuracy over money paid: a point per budget, mean over the seeds with its 95 % "
    "interval.",
    "rounds": "Accuracy over the rounds, with 95 % intervals over the seeds.",
    "costs": "Who sells: owners in fifths by their privacy cost.",
}
_MEANINGS = (
    ("paid", "sum of the payments"),
    ("accuracy", "of the trained model, mean ± half of its 95 % interval over the seeds"),
    ("curator", "value of the trained model to the curator less payments, over no trade"),
    ("owners", "what all owners gain over no trade"),
    ("welfare", "both in units of money, each side by what money is worth to it"),
    ("worse off", "owners whose contract is worth less to them than no trade"),
    ("lying", "most that an owner gains by any misreport; - where it is not computed"),
    ("messages", "questions that an owner answers on average; - where nobody asks"),
    ("seconds", "of processors that the mechanism takes to decide"),
)


def head_of_mechanism(name: str) -> str:
    """A mechanism in words; that nobody trades is called so."""
    return "no trade" if name == NO_TRADE else name_of(name)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def budget_in_words(budget: float | None) -> str:
    """A budget for people."""
    return "no limit" if budget is None else f"{budget:,g}"


def under_budget(budget: float | None) -> str:
    """The beginning of a sentence about one budget."""
    return "Without a budget" if budget is None else f"With a budget of {budget:,g}"


def middle_budget(rows: Sequence[Row]) -> float | None:
    """The budget that figures of one budget show."""
    budgets = list(dict.fromkeys(row.budget for row in rows))
    return budgets[len(budgets) // 2]


def by_mechanism(rows: Sequence[Row], budget: float | None) -> dict[str, list[Row]]:
    """The cases of a budget, mechanism by mechanism."""
    out: dict[str, list[Row]] = {}
    for row in rows:
        if row.budget == budget:
            out.setdefault(row.mechanism, []).append(row)
    return out


def campaign_table(means: Sequence[MeanRow]) -> Table:
    """A row per mechanism and budget: means over the seeds; accuracy with its 95 % interval."""
    seeds = max((one["seeds"] for one in means), default=0)
    table = Table(
        title=f"Mechanisms on the same owners and data, means of {seeds} seeds",
        title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("budget", justify="right")
    table.add_column("mechanism", no_wrap=True)
    for _, head, _ in COLUMNS:
        table.add_column(head, justify="right", no_wrap=True)
    for budget in dict.fromkeys(one["budget"] for one in means):
        for one in means:
            if one["budget"] == budget:
                table.add_row(*_cells(one))
        table.add_section()
    return table


def _cells(one: MeanRow) -> list[str]:
    out = [budget_in_words(one["budget"]), head_of_mechanism(one["mechanism"])]
    for name, _, form in COLUMNS:
        text = "-" if one[name] is None else form.format(one[name])
        if name == "accuracy" and one.get("accuracy_half_width"):
            text += f" ± {one['accuracy_half_width']:.2f}"
        out.append(text)
    return out


def findings(rows: Sequence[Row]) -> list[str]:
    """How the clock auction (or the first mechanism) differs from every other, in sentences."""
    names = list(dict.fromkeys(row.mechanism for row in rows))
    own = OWN if OWN in names else next((name for name in names if name != NO_TRADE), NO_TRADE)
    found = paired_differences(rows)
    out = []
    for budget in dict.fromkeys(row.budget for row in rows):
        some = [one for one in found if one.budget == budget and own in (one.first, one.second)]
        words = [_difference(one, own) for one in some]
        if words:
            own_name = head_of_mechanism(own)
            out.append(f"{under_budget(budget)}, accuracy of the {own_name}: {'; '.join(words)}.")
    if any(one.p is not None for one in found):
        same = len(same_contracts(rows))
        left_out = f"; {same} pairs that bought the same are left out" if same else ""
        out.append(
            f"* differs by more than chance (paired t-test over the seeds, Holm's correction for "
            f"{len(found)} comparisons, {100 * LEVEL:g} %{left_out})."
        )
    return out


def _difference(one: Difference, own: str) -> str:
    points, other = (one.points, one.second) if one.first == own else (-one.points, one.first)
    mark = "*" if one.significant else ""
    return f"{points:+.2f}{mark} against {head_of_mechanism(other)}"


def knows(name: str) -> str:
    """What a mechanism must know."""
    return MECHANISMS[name].knows if name in MECHANISMS else ""


def campaign_page(document: Mapping[str, Any], figures: Sequence[Path], scenario: Path) -> str:
    """The whole page: what ``comparison.json`` holds, the figures in SVG, the scenario's file."""
    seeds, owners = len(document["seeds"]), document["owners"]
    about = (
        f"{owners:,} owners, {document['rounds']} rounds, model {document['model']}, loss surface "
        f"{document['surface']}, {seeds} seeds. {document['machine']}, {document['date']}."
    )
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<title>Which mechanism? A comparison</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Which mechanism?</h1>",
        f"<p>{escape(about)}</p>",
        *(_figure(path) for path in figures if path.suffix == ".svg"),
        _means(document["means"]),
        "<ul>" + "".join(f"<li><b>{a}</b>: {escape(b)}</li>" for a, b in _MEANINGS) + "</ul>",
        _knows(document["mechanisms"]),
        _differences(document["differences"]),
        "<h2>The scenario</h2>",
        f"<pre>{escape(scenario.read_text(encoding='utf-8'))}</pre>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _figure(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    drawing = text[text.index("<svg") :]
    caption = escape(_CAPTIONS.get(path.stem, path.stem))
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = ("".join(f"<td>{escape(word)}</td>" for word in row) for row in rows)
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    head = "".join(f"<th>{head}</th>" for head in heads)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _means(rows: Sequence[MeanRow]) -> str:
    heads = ["budget", "mechanism", *(head for _, head, _ in COLUMNS)]
    return _table("<caption>Means over the seeds</caption>", heads, map(_cells, rows))


def _knows(names: Sequence[str]) -> str:
    lines = "".join(
        f"<li><b>{escape(head_of_mechanism(name))}</b>: {escape(knows(name))}</li>"
        for name in names
    )
    return f"<h2>What each must know</h2><ul>{lines}</ul>"


def _differences(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            budget_in_words(one["budget"]),
            f"{head_of_mechanism(one['first'])} less {head_of_mechanism(one['second'])}",
            f"{one['points']:+.2f}",
            "-" if one["p_corrected"] is None else f"{one['p_corrected']:.2g}",
            "yes" if one["significant"] else "no",
        )
        for one in found
    ]
    heads = ("budget", "pair", "points of accuracy", "p, Holm", "more than chance")
    return (
        "<h2>Which differences are more than chance</h2><p>Paired t-tests over the seeds, with "
        "Holm's correction for all of them together, at 5 %. Pairs that signed the same "
        f"contracts in every seed are no comparison, and are left out.</p>{_table('', heads, rows)}"
    )
