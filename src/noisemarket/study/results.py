"""Results of a comparison: a row for each case, means over the seeds, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from noisemarket.game.levels import FloatArray

Value = TypeVar("Value")
Cases = dict[float | None, dict[str, list[Value]]]
NO_TRADE = "uniform"
"""The mechanism that all are measured by: nobody sells."""
LEVEL = 0.05
"""Family-wise error rate over all comparisons of a table."""

MeanRow = dict[str, Any]
"""A mechanism under one budget: means over the seeds, and half of their 95 % intervals."""

Pair = tuple[float | None, str, str]
"""A budget and two mechanisms under it, in alphabetical order."""


@dataclass(frozen=True)
class Case:
    """A mechanism under a budget (None: no limit) with a seed, and what was agreed.

    The curator's ``predicted_value`` by the loss surface and ``owners_surplus`` are over no trade.
    """

    mechanism: str
    budget: float | None
    seed: int
    paid: float
    predicted_value: float
    owners_surplus: float
    worse_off: int
    sellers: int
    messages: float | None
    seconds: float

    def case(self) -> dict[str, Any]:
        """These values, for a row that says more."""
        return {one.name: getattr(self, one.name) for one in fields(Case)}


@dataclass(frozen=True)
class Row(Case):
    """The result of a case through to the model.

    ``accuracy`` is of the deployed model, in per cent; ``trained_value`` is the curator's value
    over no trade of the same seed, by that accuracy and the payments. ``social_welfare`` adds both
    sides as trained, in units of money, each by what money is worth to it: None where it is worth
    nothing to one of them. ``epsilon_sold`` is None without bound.

    Example:
        ::

            rows = nm.compare(scenario, mechanisms=["clock", "dypp"], seeds=3)
            table = pandas.DataFrame(map(vars, rows))
    """

    accuracy: float
    trained_value: float
    social_welfare: float | None
    epsilon_sold: float | None
    accuracy_per_round: list[float]


AVERAGED = tuple(
    one.name
    for one in fields(Row)
    if one.name not in ("mechanism", "budget", "seed") and not one.type.startswith("list")
)
"""What a mean over the seeds is taken of."""


def means(rows: Iterable[Row]) -> list[MeanRow]:
    """A row per mechanism and budget: ``x`` and ``x_half_width`` of each figure, over the seeds."""
    groups: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.mechanism, row.budget), []).append(row)
    out = []
    for (name, budget), own in groups.items():
        mean: dict[str, Any] = {"mechanism": name, "budget": budget, "seeds": len(own)}
        for column in AVERAGED:
            known = [value for row in own if (value := getattr(row, column)) is not None]
            mean[column] = float(np.mean(known)) if known else None
            mean[f"{column}_half_width"] = half_width(known)
        out.append(mean)
    return out


def round_means(rows: Sequence[Row]) -> list[MeanRow]:
    """``mean`` and ``half_width`` of the accuracy after each round, per mechanism and budget."""
    cases: dict[tuple[float | None, str], list[list[float]]] = {}
    for row in rows:
        cases.setdefault((row.budget, row.mechanism), []).append(row.accuracy_per_round)
    return [
        {
            "mechanism": name,
            "budget": budget,
            "mean": np.mean(runs, axis=0).tolist(),
            "half_width": [half_width(values) for values in zip(*runs, strict=True)],
        }
        for (budget, name), runs in cases.items()
    ]


def _by_case(rows: Iterable[Row], value: Callable[[Row], Value]) -> Cases[Value]:
    """A value of each row, by budget and mechanism, over the seeds."""
    out: Cases[Value] = {}
    for row in sorted(rows, key=lambda row: row.seed):
        out.setdefault(row.budget, {}).setdefault(row.mechanism, []).append(value(row))
    return out


def same_contracts(rows: Iterable[Row]) -> list[Pair]:
    """Pairs of mechanisms that signed the same contracts in every seed, under each budget.

    Contracts that are paid the same, leave owners the same, sell as much epsilon, and train the
    same model are taken to be the same.
    """
    what = attrgetter("paid", "sellers", "accuracy", "owners_surplus", "epsilon_sold")
    return [
        pair_of(budget, first, second)
        for budget, by_name in _by_case(rows, what).items()
        for first, second in combinations(by_name, 2)
        if by_name[first] == by_name[second]
    ]


def paired_differences(rows: Sequence[Row]) -> list[Difference]:
    """Every pair of mechanisms under each budget that did not buy the same, tested."""
    return differences(_by_case(rows, lambda row: row.accuracy), same_contracts(rows))


def comparison_document(rows: Sequence[Row]) -> dict[str, Any]:
    """All results of a comparison, for JSON."""
    return {
        "means": means(rows),
        "differences": [
            {**vars(one), "significant": one.significant} for one in paired_differences(rows)
        ],
        "same_contracts": [list(pair) for pair in same_contracts(rows)],
        "rows": [vars(row) for row in rows],
    }


@dataclass(frozen=True)
class Difference:
    """How two mechanisms differ in accuracy under one budget, over the same seeds.

    ``points`` is the mean of first less second, ``p`` its two-sided paired t-test, ``p_corrected``
    the same after Holm's correction for all comparisons of a table; None with fewer than two seeds,
    or where all of them differ by the same.
    """

    first: str
    second: str
    budget: float | None
    points: float
    p: float | None
    p_corrected: float | None

    @property
    def significant(self) -> bool:
        """Whether it is more than chance."""
        return self.p_corrected is not None and self.p_corrected < LEVEL


def pair_of(budget: float | None, first: str, second: str) -> Pair:
    """Two mechanisms under a budget, in alphabetical order."""
    return (budget, *sorted((first, second)))  # type: ignore[return-value]


def differences(
    accuracies: Mapping[float | None, Mapping[str, Sequence[float]]],
    same: Collection[Pair] = (),
) -> list[Difference]:
    """All pairs of mechanisms under each budget, largest differences first.

    Accuracies are over the same seeds in the same order. Pairs that are the ``same`` in every seed
    are left out, and do not count among the comparisons that are corrected for.
    """
    found = []
    for budget, by_name in accuracies.items():
        for first, second in combinations(by_name, 2):
            if pair_of(budget, first, second) in same:
                continue
            apart = np.subtract(by_name[first], by_name[second])
            found.append((first, second, budget, float(apart.mean()), paired_p(apart)))
    corrected = holm([one[-1] for one in found])
    made = [Difference(*one, p) for one, p in zip(found, corrected, strict=True)]
    return sorted(made, key=lambda one: -abs(one.points))


def paired_p(apart: np.ndarray) -> float | None:
    """The two-sided p of Student's paired test that a mean difference is 0."""
    if len(apart) < 2:
        return None
    if np.ptp(apart) == 0.0:
        return 1.0 if apart[0] == 0.0 else None  # no spread to judge the difference by
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(apart, 0.0).pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, in the order that was given; None stays None."""
    known = sorted((p, at) for at, p in enumerate(values) if p is not None)
    out: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, at) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        out[at] = highest
    return out


def half_width(values: Sequence[float] | FloatArray, confidence: float = 0.95) -> float:
    """Half of the confidence interval of a mean over seeds; 0 with fewer than two."""
    if len(values) < 2:
        return 0.0
    from scipy.stats import t

    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(t.ppf(0.5 + confidence / 2, len(values) - 1)) * spread
