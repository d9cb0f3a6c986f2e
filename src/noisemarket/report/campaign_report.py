"""Mechanisms compared through to the model: the table, and what is more than chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisemarket.comparison.decisions import NO_TRADE
from noisemarket.comparison.results import Mean, Row, paired_differences, same_contracts
from noisemarket.comparison.significance import LEVEL, Difference
from noisemarket.mechanisms import MECHANISMS
from noisemarket.report.style import name_of

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


def head_of_mechanism(name: str) -> str:
    """A mechanism in words; that nobody trades is called so."""
    return "no trade" if name == NO_TRADE else name_of(name)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def budget_in_words(budget: float | None) -> str:
    """A budget for people."""
    return "no limit" if budget is None else f"{budget:,g}"


def campaign_table(means: Sequence[Mean]) -> Table:
    """A row per mechanism and budget: means over the seeds; accuracy with its 95 % interval."""
    seeds = max((one.seeds for one in means), default=0)
    table = Table(
        title=f"Mechanisms on the same owners and data, means of {seeds} seeds",
        title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("budget", justify="right")
    table.add_column("mechanism", no_wrap=True)
    for _, head, _ in COLUMNS:
        table.add_column(head, justify="right", no_wrap=True)
    for budget, some in _by_budget(means).items():
        for one in some:
            table.add_row(budget_in_words(budget), head_of_mechanism(one.mechanism), *cells(one))
        table.add_section()
    return table


def cells(one: Mean) -> list[str]:
    """The figures of a row."""
    out = []
    for name, _, form in COLUMNS:
        value = one.mean[name]
        text = "-" if value is None else form.format(value)
        if name == "accuracy" and one.half_width.get(name):
            text += f" ± {one.half_width[name]:.2f}"
        out.append(text)
    return out


def _by_budget(means: Iterable[Mean]) -> dict[float | None, list[Mean]]:
    out: dict[float | None, list[Mean]] = {}
    for one in means:
        out.setdefault(one.budget, []).append(one)
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
            limit = "Without a budget" if budget is None else f"With a budget of {budget:,g}"
            out.append(f"{limit}, accuracy of the {head_of_mechanism(own)}: {'; '.join(words)}.")
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
