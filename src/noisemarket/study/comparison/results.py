"""Decisions and trainings together: a row per case, and the mean over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from noisemarket.formats import finite
from noisemarket.game.levels import FloatArray
from noisemarket.study.comparison.decisions import Decision
from noisemarket.study.comparison.significance import (
    Difference,
    Pair,
    differences,
    half_width,
    pair_of,
)

Value = TypeVar("Value")
Cases = dict[float | None, dict[str, list[Value]]]
QUANTILES = 5
"""Groups of owners by their privacy cost, cheapest first."""


@dataclass(frozen=True)
class Row:
    """What a case came to.

    Args:
        mechanism, budget, seed: the case; a budget of None is none.
        paid: the sum of the payments.
        accuracy: deployed test accuracy at the end, in per cent.
        curator_value: what the trained model and the payments are worth to the curator, over no
            trade of the same seed.
        owners_surplus: what all owners gain over no trade.
        social_welfare: both in units of money, each side by what money is worth to it: payments
            cancel. None where money is worth nothing to one of them.
        worse_off: owners whose contract is worth less to them than no trade.
        sellers: owners that give up noise.
        epsilon_sold: the sum over owners of what they give up beyond no trade; None without bound.
        lying_gain: the most that an owner gains by any misreport; None where it is not known, and
            for all seeds but the first.
        messages: questions that an owner answers on average.
        seconds: of processors that the mechanism took to decide.
        accuracy_per_round: deployed accuracy after each round.
        epsilon_by_cost: mean epsilon given up beyond no trade, by quantile of the privacy cost.
        surplus_by_cost: mean gain of an owner, by the same quantiles.
    """

    mechanism: str
    budget: float | None
    seed: int
    paid: float
    accuracy: float
    curator_value: float
    owners_surplus: float
    social_welfare: float | None
    worse_off: int
    sellers: int
    epsilon_sold: float | None
    lying_gain: float | None
    messages: float | None
    seconds: float
    accuracy_per_round: list[float]
    epsilon_by_cost: list[float | None]
    surplus_by_cost: list[float | None]


AVERAGED = tuple(
    one.name
    for one in fields(Row)
    if one.name not in ("mechanism", "budget", "seed") and not one.type.startswith("list")
)
"""What a mean over the seeds is taken of."""


def row_of(
    decision: Decision,
    accuracies: Sequence[float],
    epsilon: FloatArray,
    no_trade: Sequence[float],
    epsilon_before: FloatArray,
) -> Row:
    """A case with what its model was trained to.

    Args:
        decision: what the mechanism decided.
        accuracies: after each round, under it.
        epsilon: what each owner gives up.
        no_trade: the accuracies without trade.
        epsilon_before: what each owner gives up without trade.
    """
    quality_price, money_price, owners_price = decision.welfare_prices
    paid, surplus = decision.worth.total_payment, float(decision.gains.sum())
    value = quality_price * (accuracies[-1] - no_trade[-1]) - money_price * paid
    welfare = (
        value / money_price + surplus / owners_price if money_price * owners_price > 0 else None
    )
    bounded = bool(np.isfinite(epsilon_before).all())
    sold = epsilon - epsilon_before if bounded else np.full(len(epsilon), np.inf)
    groups = np.array_split(np.argsort(decision.costs, kind="stable"), QUANTILES)
    return Row(
        mechanism=decision.mechanism,
        budget=decision.budget,
        seed=decision.seed,
        paid=paid,
        accuracy=accuracies[-1],
        curator_value=value,
        owners_surplus=surplus,
        social_welfare=welfare,
        worse_off=int((decision.gains < -1e-9).sum()),
        sellers=decision.sellers,
        epsilon_sold=finite(float(sold.sum())),
        lying_gain=decision.lying,
        messages=decision.messages,
        seconds=decision.seconds,
        accuracy_per_round=list(accuracies),
        epsilon_by_cost=[_mean_of(sold, some) for some in groups],
        surplus_by_cost=[_mean_of(decision.gains, some) for some in groups],
    )


def _mean_of(values: FloatArray, some: np.ndarray) -> float | None:
    return finite(float(values[some].mean())) if len(some) else None


@dataclass(frozen=True)
class Mean:
    """A mechanism under one budget: means over the seeds, and how sure they are."""

    mechanism: str
    budget: float | None
    seeds: int
    mean: Mapping[str, float | None]
    half_width: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON: ``x`` and ``x_half_width`` for each figure."""
        widths = {f"{name}_half_width": value for name, value in self.half_width.items()}
        named = {"mechanism": self.mechanism, "budget": self.budget, "seeds": self.seeds}
        return {**named, **self.mean, **widths}


def means(rows: Iterable[Row]) -> list[Mean]:
    """The mean over the seeds of each mechanism under each budget, in the order of the rows."""
    groups: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.mechanism, row.budget), []).append(row)
    out = []
    for (name, budget), own in groups.items():
        columns = {column: [getattr(row, column) for row in own] for column in AVERAGED}
        known = {
            column: [value for value in values if value is not None]
            for column, values in columns.items()
        }
        mean = {column: float(np.mean(some)) if some else None for column, some in known.items()}
        widths = {column: half_width(some) for column, some in known.items()}
        out.append(Mean(name, budget, len(own), mean, widths))
    return out


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
    bought = _by_case(rows, what)
    return [
        pair_of(budget, first, second)
        for budget, by_name in bought.items()
        for first, second in combinations(by_name, 2)
        if by_name[first] == by_name[second]
    ]


def paired_differences(rows: Sequence[Row]) -> list[Difference]:
    """Every pair of mechanisms under each budget that did not buy the same, tested."""
    return differences(_by_case(rows, lambda row: row.accuracy), same_contracts(rows))
