"""Mechanisms side by side: on one population without training, and through to the model.

Tables for the screen, sentences on what is more than chance, and one page of HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisemarket.market.negotiation import Negotiation
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.convergence import Recovery
from noisemarket.pricing.lying import mean_and_most
from noisemarket.show.negotiation_report import recovered
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
"""The mechanism that the findings compare all others with, if it is among them."""

GAME_COLUMNS = (
    *("mechanism", "knows", "mean_saving", "mean_payment", "mean_owner_payoff"),
    *("mean_curator_payoff", "curator_gain", "mean_quality", "total_payment", "model_quality"),
    *("joint_gain", "sellers", "owners_surplus", "signed_share", "converged_at"),
    *("exploitability", "mean_gained_by_lying", "most_gained_by_lying", "recovery"),
)
_GAME_CELLS = (
    ("mean_saving", "saving", "{:.3f}"),
    ("mean_payment", "payment", "{:.2f}"),
    ("mean_owner_payoff", "owner", "{:.3f}"),
    ("curator_gain", "curator", "{:.3f}"),
    ("model_quality", "model %", "{:.1f}"),
    ("joint_gain", "value", "{:.1f}"),
    ("signed_share", "signed", "{:.0%}"),
    ("converged_at", "settled", "{:,}"),
    ("exploitability", "exploit.", "{:.3f}"),
    ("most_gained_by_lying", "lying", "{:.3f}"),
)
_TRAINED_CELLS = (
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
"""Field, head and format of each column on the screen."""

MeanRow = Mapping[str, Any]
"""A mechanism under one budget, as ``comparison.json`` has it: see ``comparison.results.Mean``."""

_PAGE = Path(__file__).with_name("report.html")
_CAPTIONS = {
    "frontier": "Accuracy over money paid: a point per budget, mean over the seeds with its 95 % "
    "interval.",
    "rounds": "Accuracy over the rounds, with 95 % intervals over the seeds.",
}


def head_of_mechanism(name: str) -> str:
    """A mechanism in words; the one without any trade is called so."""
    return "no trade" if name == NO_TRADE else name_of(name)


def knows(name: str) -> str:
    """The knowledge that a mechanism needs."""
    return MECHANISMS[name].knows if name in MECHANISMS else ""


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


def game_rows(results: Mapping[str, Negotiation]) -> list[dict[str, Any]]:
    """One record per mechanism; ``recovery`` says how it recovered from each change."""
    rows = []
    for name, result in results.items():
        summary = result.outcome()
        mean, most = mean_and_most(result.gained_by_lying)
        summary |= {"mean_gained_by_lying": mean, "most_gained_by_lying": most}
        gain = result.learned.mean_owner_payoff - result.exactly("uniform").mean_owner_payoff
        summary["owners_surplus"] = gain * len(result.environment)
        summary["sellers"] = int(result.agreement.contracts.signed.sum())
        row: dict[str, Any] = {"mechanism": name, "knows": find_mechanism(name).knows}
        row |= {column: summary[column] for column in GAME_COLUMNS[2:-1]}
        row["recovery"] = [vars(recovery) for recovery in result.recoveries]
        rows.append(row)
    return rows


def game_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The same for the screen: owner's payoff, curator's gain in the paper's game, the quality of
    the one model, its value to the curator over no trade, the share of signed contracts, and the
    largest gain of any owner by lying."""
    changed = any(row["recovery"] for row in rows)
    table = _table("Mechanisms on one population, means per owner")
    table.add_column("mechanism", no_wrap=True)
    for _, head, _ in _GAME_CELLS:
        table.add_column(head, justify="right", no_wrap=True)
    if changed:
        table.add_column("recovers in", justify="right")
    for row in rows:
        cells = [_cell(row[name], form) for name, _, form in _GAME_CELLS]
        if changed:
            times = [recovered(Recovery(**one)) for one in row["recovery"]]
            cells.append(", ".join(times) or "-")
        table.add_row(row["mechanism"], *cells)
    return table


def game_csv_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[object]]:
    """The same for ``comparison.csv``: the iterations of each recovery in one cell."""
    out = []
    for row in rows:
        times = [one["iterations"] for one in row["recovery"]]
        words = " ".join("never" if time is None else str(time) for time in times)
        cells = [row[column] for column in GAME_COLUMNS[:-1]]
        out.append(["" if cell is None else cell for cell in [*cells, words]])
    return out


def trained_table(means: Sequence[MeanRow]) -> Table:
    """A row per mechanism and budget: means over the seeds; accuracy with its 95 % interval."""
    seeds = max((one["seeds"] for one in means), default=0)
    table = _table(f"Mechanisms on the same owners and data, means of {seeds} seeds")
    table.add_column("budget", justify="right")
    table.add_column("mechanism", no_wrap=True)
    for _, head, _ in _TRAINED_CELLS:
        table.add_column(head, justify="right", no_wrap=True)
    for budget in dict.fromkeys(one["budget"] for one in means):
        for one in means:
            if one["budget"] == budget:
                table.add_row(*_cells(one))
        table.add_section()
    return table


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )


def _cells(one: MeanRow) -> list[str]:
    out = [budget_in_words(one["budget"]), head_of_mechanism(one["mechanism"])]
    for name, _, form in _TRAINED_CELLS:
        text = _cell(one[name], form)
        if name == "accuracy" and one.get("accuracy_half_width"):
            text += f" ± {one['accuracy_half_width']:.2f}"
        out.append(text)
    return out


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


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


def comparison_page(document: Mapping[str, Any], figures: Sequence[Path], scenario: Path) -> str:
    """``comparison.json``, the figures in SVG and the scenario's file as one page of HTML."""
    seeds, owners = len(document["seeds"]), document["owners"]
    about = (
        f"{owners:,} owners, {document['rounds']} rounds, model {document['model']}, loss surface "
        f"{document['surface']}, {seeds} seeds. {document['machine']}, {document['date']}."
    )
    heads = ["budget", "mechanism", *(head for _, head, _ in _TRAINED_CELLS)]
    caption = "<caption>Means over the seeds</caption>"
    page = Template(_PAGE.read_text(encoding="utf-8"))
    return page.substitute(
        about=escape(about),
        figures="\n".join(_figure(path) for path in figures if path.suffix == ".svg"),
        means=_html_table(heads, map(_cells, document["means"]), caption),
        knows="".join(
            f"<li><b>{escape(head_of_mechanism(name))}</b>: {escape(knows(name))}</li>"
            for name in document["mechanisms"]
        ),
        differences=_differences(document["differences"]),
        scenario=escape(scenario.read_text(encoding="utf-8")),
    )


def _figure(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    drawing = text[text.index("<svg") :]
    caption = escape(_CAPTIONS.get(path.stem, path.stem))
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    cells = ("".join(f"<td>{escape(word)}</td>" for word in row) for row in rows)
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    head = "".join(f"<th>{head}</th>" for head in heads)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _differences(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            budget_in_words(one["budget"]),
            f"{head_of_mechanism(one['first'])} less {head_of_mechanism(one['second'])}",
            f"{one['points']:+.2f}",
            _cell(one["p_corrected"], "{:.2g}"),
            "yes" if one["significant"] else "no",
        )
        for one in found
    ]
    heads = ("budget", "pair", "points of accuracy", "p, Holm", "more than chance")
    return _html_table(heads, rows)
