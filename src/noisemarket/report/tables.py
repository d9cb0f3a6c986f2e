"""Contracts and traces as tables of text, ready to be written or read by a script."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.mechanisms.mechanism import Contracts, Trace

CONTRACT_COLUMNS = ("owner", "privacy_cost", "beta", "saving", "sigma", "payment", "signed")


def contract_rows(
    environment: Environment, contracts: Contracts, owners: slice | Iterable[int]
) -> Iterator[tuple[str, ...]]:
    """One row per owner; the preferences are those in force at the end.

    ``owners`` are the owners' numbers, or the slice of them that ``contracts`` is about.
    """
    levels, now = environment.levels, environment.phases[-1]
    savings = [repr(float(value)) for value in np.round(levels.savings, 12)]
    sigmas = [repr(float(value)) for value in np.round(levels.sigma_max - levels.savings, 12)]
    payments = [repr(float(value)) for value in np.round(levels.payments, 12)]
    first = 0
    if isinstance(owners, slice):
        first, owners = owners.start, range(owners.start, owners.stop)
    for i in owners:
        j, k = contracts.saving[i - first], contracts.payment[i - first]
        yield (
            str(environment.population.names[i]),
            repr(float(now.privacy_cost[i])),
            repr(float(now.beta[i])),
            savings[j],
            sigmas[j],
            payments[k],
            "true" if contracts.signed[i - first] else "false",
        )


def contracts_csv(environment: Environment, contracts: Contracts, done: Iterable[int]) -> str:
    """The contracts of all finished owners, with a header."""
    return csv_text(CONTRACT_COLUMNS, contract_rows(environment, contracts, done))


def trace_csv(trace: Trace) -> str:
    """A trace, one row per block of iterations."""
    names = list(Trace.__dataclass_fields__)
    columns = [getattr(trace, name).tolist() for name in names]
    return csv_text(names, zip(*columns, strict=True))


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
