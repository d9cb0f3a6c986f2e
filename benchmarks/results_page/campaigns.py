"""A stored campaign: its cases, means and differences, as the pages speak of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from benchmarks.results_page.common import Document, stored
from noisemarket.show.style import name_of
from noisemarket.study.results import (
    NO_TRADE,
    Difference,
    MeanRow,
    Pair,
    Row,
    means,
    pair_of,
    paired_differences,
    same_contracts,
)


@dataclass(frozen=True)
class Stored:
    """A campaign that was stored."""

    document: Document

    @cached_property
    def rows(self) -> list[Row]:
        """All cases."""
        names = {field.name for field in fields(Row)}
        return [
            Row(accuracy_per_round=[], **{key: row[key] for key in names & row.keys()})
            for row in self.document["rows"]
        ]

    @cached_property
    def means(self) -> list[MeanRow]:
        """Of every mechanism under every budget, no trade left out."""
        return [one for one in means(self.rows) if one["mechanism"] != NO_TRADE]

    @cached_property
    def nothing(self) -> MeanRow:
        """No trade."""
        return next(one for one in means(self.rows) if one["mechanism"] == NO_TRADE)

    @cached_property
    def tested(self) -> list[Difference]:
        """Pairs that did not buy the same."""
        return paired_differences(self.rows)

    @cached_property
    def same(self) -> list[Pair]:
        """Pairs that did."""
        return same_contracts(self.rows)

    @property
    def budgets(self) -> list[float | None]:
        """Least first; None, no limit, last."""
        return list(self.document["budgets"])

    @property
    def names(self) -> list[str]:
        """Mechanisms, no trade left out."""
        return list(dict.fromkeys(one["mechanism"] for one in self.means))

    def at(self, mechanism: str, budget: float | None) -> MeanRow:
        """One of the means."""
        wanted = mechanism, budget
        return next(one for one in self.means if (one["mechanism"], one["budget"]) == wanted)

    def bounded(self, mechanism: str) -> bool:
        """Whether every seller keeps some noise under every budget."""
        return all(row.epsilon_sold is not None for row in self.rows if row.mechanism == mechanism)

    def value(self, mechanism: str, budget: float | None, figure: str) -> float:
        """A mean that is known."""
        return self.at(mechanism, budget)[figure] or 0.0

    def between(self, budget: float | None, first: str, second: str) -> tuple[float, bool]:
        """First less second in points of accuracy, and whether that is more than chance."""
        for one in self.tested:
            if one.budget == budget and {one.first, one.second} == {first, second}:
                return (one.points if one.first == first else -one.points), one.significant
        return 0.0, False

    def bought_the_same(self, budget: float | None, first: str, second: str) -> bool:
        """Whether two signed the same contracts in every seed."""
        return pair_of(budget, first, second) in self.same


def campaign() -> Stored | None:
    """The campaign, if it is stored."""
    found = stored("campaign")
    return None if found is None else Stored(found)


def accuracy_in_words(one: MeanRow) -> str:
    """A mean with half of its interval."""
    return f"{one['accuracy']:.2f} ± {one['accuracy_half_width']:.2f}"


def marked(points: tuple[float, bool]) -> str:
    """A difference in points, with a star where it is more than chance."""
    return f"{points[0]:+.2f}{'*' if points[1] else ''}"


def heads(names: Sequence[str]) -> list[str]:
    """Mechanisms in words."""
    return [name_of(name) for name in names]
