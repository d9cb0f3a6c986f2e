"""A comparison as one page of HTML that needs nothing else: figures are inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from noisemarket.comparison.results import Mean
from noisemarket.report.campaign_report import (
    COLUMNS,
    budget_in_words,
    cells,
    head_of_mechanism,
    knows,
)

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
    "growth": "Processor seconds to decide as owners grow.",
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


def campaign_page(document: Mapping[str, Any], figures: Sequence[Path], scenario: Path) -> str:
    """The whole page.

    Args:
        document: what ``comparison.json`` holds.
        figures: files of the figures; those in SVG go into the page.
        scenario: the scenario's file, which is shown at the end.
    """
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
        _table(document["means"]),
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


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = "".join(f"<th>{head}</th>" for head in ("budget", "mechanism", *_heads()))
    lines = []
    for row in rows:
        widths = {name: row.get(f"{name}_half_width", 0.0) for name, _, _ in COLUMNS}
        mean = Mean(row["mechanism"], row["budget"], row["seeds"], row, widths)
        words = [budget_in_words(mean.budget), head_of_mechanism(mean.mechanism), *cells(mean)]
        lines.append("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in words) + "</tr>")
    return (
        "<table><caption>Means over the seeds</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _heads() -> list[str]:
    return [head for _, head, _ in COLUMNS]


def _knows(names: Sequence[str]) -> str:
    lines = "".join(
        f"<li><b>{escape(head_of_mechanism(name))}</b>: {escape(knows(name))}</li>"
        for name in names
    )
    return f"<h2>What each must know</h2><ul>{lines}</ul>"


def _differences(found: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for one in found:
        p = "-" if one["p_corrected"] is None else f"{one['p_corrected']:.2g}"
        words = (
            budget_in_words(one["budget"]),
            f"{head_of_mechanism(one['first'])} less {head_of_mechanism(one['second'])}",
            f"{one['points']:+.2f}",
            p,
            "yes" if one["significant"] else "no",
        )
        lines.append("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in words) + "</tr>")
    heads = "".join(
        f"<th>{head}</th>"
        for head in ("budget", "pair", "points of accuracy", "p, Holm", "more than chance")
    )
    return (
        "<h2>Which differences are more than chance</h2><p>Paired t-tests over the seeds, with "
        "Holm's correction for all of them together, at 5 %. Pairs that signed the same "
        "contracts in every seed are no comparison, and are left out.</p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )
