"""Which differences are more than chance: paired tests, corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from noisemarket.game.levels import FloatArray

LEVEL = 0.05
"""Chance, over all comparisons together, of calling a difference significant that is none."""

Pair = tuple[float | None, str, str]
"""A budget and two mechanisms under it, in alphabetical order."""


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
    """Two mechanisms under a budget, whoever is named first."""
    return (budget, *sorted((first, second)))  # type: ignore[return-value]


def differences(
    accuracies: Mapping[float | None, Mapping[str, Sequence[float]]],
    same: Collection[Pair] = (),
) -> list[Difference]:
    """All pairs of mechanisms under each budget, largest differences first.

    Args:
        accuracies: by budget and mechanism, over the same seeds in the same order.
        same: pairs that decided the same in every seed. There is nothing to compare, so they are
            left out, and do not count among the comparisons that are corrected for.
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
